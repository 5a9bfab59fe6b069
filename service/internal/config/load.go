package config

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const maxFiles = 10_000

// A Source is the location of a configuration on disk.
type Source struct {
	// Path is a file or a directory. As Envoy's service does, Load reads every file in a directory and below it,
	// whatever its name, in the order of the names. It leaves out names that begin with a dot, links to directories, and
	// files that are not regular, and warns of them. It leaves out names that begin with two dots without a warning,
	// because Kubernetes keeps the versions of a ConfigMap there. It follows the links that Kubernetes makes to the
	// directories of the current version.
	Path string
	// DotFiles makes Load read files and directories whose names begin with one dot too.
	DotFiles bool
	// Siblings makes Load also read the files and directories beside Path whose names begin with Path's name and a dot:
	// config.yaml beside config. Path itself need not exist then.
	Siblings bool
	// Merge lets several files add descriptors to one domain.
	Merge bool
	// Defaults are the options of rules that do not name their own.
	Defaults Defaults
}

// Load reads and checks the configuration. The fingerprint is that of the files as Load read them, even if there is an error.
func (s Source) Load() (*Config, Fingerprint, error) {
	r := s.read()
	cfg, err := r.parse(s)
	return cfg, r.fingerprint(), err
}

// A found is the contents of a Source.
type found struct {
	files   []File
	skipped []string // for people: what was not read and why; at most MaxWarnings
	err     error    // what cannot be read
}

func (f *found) parse(s Source) (*Config, error) {
	if f.err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", f.err)
	}
	cfg, err := Parse(s.Defaults, s.Merge, f.files...)
	if err == nil {
		cfg.warnings = append(f.skipped, cfg.warnings...)
	}
	return cfg, err
}

func (s Source) read() *found {
	f := &found{}
	paths, err := s.paths()
	for _, path := range paths {
		if err == nil {
			err = s.visit(path, f)
		}
	}
	if f.err = err; err == nil && len(f.files) == 0 {
		f.err = fmt.Errorf("the directory %s has no file%s", s.Path, strings.Join(append([]string{""}, f.skipped...), "; "))
	}
	return f
}

func (s Source) paths() ([]string, error) {
	if !s.Siblings {
		return []string{s.Path}, nil
	}
	dir, base := filepath.Split(filepath.Clean(s.Path))
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		if name := entry.Name(); name == base || strings.HasPrefix(name, base+".") {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	if len(paths) == 0 {
		return []string{s.Path}, nil // reading it returns the error that it does not exist
	}
	return paths, nil
}

func (s Source) visit(path string, f *found) error {
	info, err := os.Stat(path) // a ConfigMap's files are symbolic links
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return s.walk(path, f)
	case !info.Mode().IsRegular() && (s.Siblings || path != s.Path): // reading a pipe would wait for a writer
		f.skip(path, "it is not a regular file")
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if f.files = append(f.files, File{Name: path, Text: text}); len(f.files) > maxFiles {
		return fmt.Errorf("more than %d files: give a directory that has nothing but configurations", maxFiles)
	}
	return nil
}

// walk visits the files of a directory, and records what it leaves out.
func (s Source) walk(dir string, f *found) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := os.Stat(path)
		switch {
		case strings.HasPrefix(entry.Name(), ".."):
		case !s.DotFiles && strings.HasPrefix(entry.Name(), "."):
			f.skip(path, "its name begins with a dot")
		case errors.Is(err, os.ErrNotExist):
			f.skip(path, "it leads nowhere, or was removed meanwhile")
		case err == nil && info.IsDir() && !entry.IsDir() && !ofConfigMap(path):
			f.skip(path, "it is a link to a directory")
		default:
			if err := s.visit(path, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofConfigMap reports whether a link is one that Kubernetes makes to a directory of a ConfigMap.
func ofConfigMap(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && target == filepath.Join("..data", filepath.Base(link))
}

func (f *found) skip(name, why string) {
	if len(f.skipped) < MaxWarnings {
		f.skipped = append(f.skipped, name+" is not read: "+why)
	}
}

// lookEvery is how long files must stay unchanged before they are used, because editors and deployments write several
// times. Watch looks that often, and less often if a look takes more than a hundredth of it.
const lookEvery = 250 * time.Millisecond

// A Fingerprint identifies the contents of a Source.
type Fingerprint [sha256.Size]byte

// Watch calls changed after each change of the configuration's files, with the new configuration or the error, until
// the context ends. Known is the Fingerprint of the loaded files, so that Watch misses no change since then. Watch
// reads the files again and again instead of waiting for notices from the kernel. It thus follows every link on the
// way to them and works on network file systems. Calls of changed do not overlap.
func (s Source) Watch(ctx context.Context, known Fingerprint, changed func(*Config, error)) {
	w := &watching{source: s, last: known}
	go func() {
		pause := lookEvery
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			began := time.Now()
			w.look(changed)
			pause = max(lookEvery, 100*time.Since(began))
		}
	}()
}

type watching struct {
	source Source
	last   Fingerprint // of the files in use
	seen   Fingerprint // of the files at the last look
}

// look uses the files if they have changed, and if their contents are the same as at the last look.
func (w *watching) look(changed func(*Config, error)) {
	found := w.source.read()
	now := found.fingerprint()
	settled := now == w.seen
	w.seen = now
	if now == w.last || !settled {
		return
	}
	w.last = now
	changed(found.parse(w.source))
}

// fingerprint returns the fingerprint of the files. Unreadable contents also have one.
func (f *found) fingerprint() Fingerprint {
	hash := sha256.New()
	if f.err != nil {
		hash.Write([]byte("unreadable " + f.err.Error()))
	}
	for _, file := range f.files {
		name, text := sha256.Sum256([]byte(file.Name)), sha256.Sum256(file.Text)
		hash.Write(name[:])
		hash.Write(text[:])
	}
	return Fingerprint(hash.Sum(nil))
}
