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

// maxFiles bounds a configuration, in case a path is not what was meant.
const maxFiles = 10_000

// A Source is the location of a configuration on disk.
type Source struct {
	// Path is a file, or a directory. Every file in it and in the directories below is read, whatever its name, as Envoy's
	// service does, in the order of their names. Files and directories that are left out are warnings of the configuration:
	// those whose names begin with a dot, links to directories, and what is no regular file. Names that begin with two dots
	// are left out without a word: Kubernetes keeps the versions of a ConfigMap there. The links that it makes to the
	// directories of the current version are followed.
	Path string
	// DotFiles reads files and directories whose names begin with one dot too.
	DotFiles bool
	// Siblings reads the files and directories beside Path too whose names begin with that of Path and a dot: config.yaml
	// beside config. Path itself need not be there then.
	Siblings bool
	// Merge lets several files add descriptors to one domain.
	Merge bool
	// Defaults are the options of rules that do not name their own.
	Defaults Defaults
}

// Load reads and checks the configuration. The fingerprint is that of the files as Load read them, also beside an error.
func (s Source) Load() (*Config, Fingerprint, error) {
	files, found, err := s.read()
	cfg, wrong := s.parse(files, found, err)
	return cfg, fingerprint(files, err), wrong
}

// parse returns the configuration in what read returned.
func (s Source) parse(files []File, found *found, err error) (*Config, error) {
	if err != nil {
		return nil, err
	}
	cfg, err := ParseBy(s.Defaults, s.Merge, files...)
	if err != nil {
		return nil, err
	}
	all := &notes{warnings: found.skipped}
	for _, warning := range cfg.warnings {
		all.add(warning)
	}
	cfg.warnings = all.texts()
	return cfg, nil
}

// read returns the current files.
func (s Source) read() ([]File, *found, error) {
	found, err := s.find()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration: %w", err)
	}
	files := make([]File, len(found.files))
	for i, name := range found.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the configuration: %w", err)
		}
		files[i] = File{Name: name, Text: text}
	}
	return files, found, nil
}

// found is what there is at a Source.
type found struct {
	files   []string
	skipped []string // what is not read and why, for people; at most maxWarnings
}

// find returns the files of a configuration.
func (s Source) find() (*found, error) {
	f := &found{}
	paths, err := s.paths()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		switch {
		case info.IsDir():
			if err := s.walk(path, f); err != nil {
				return nil, err
			}
		case s.Siblings && !info.Mode().IsRegular(): // reading a pipe would wait for somebody who writes
			f.skip(path, "it is not a regular file")
		default:
			f.files = append(f.files, path)
		}
	}
	if len(f.files) == 0 {
		return nil, fmt.Errorf("the directory %s has no file%s", s.Path, strings.Join(append([]string{""}, f.skipped...), "; "))
	}
	return f, nil
}

// paths returns Path and its siblings, in order.
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
		return []string{s.Path}, nil // whose error says that it is not there
	}
	return paths, nil
}

// walk adds what is in a directory and below it.
func (s Source) walk(dir string, f *found) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		info, err := os.Stat(name) // a ConfigMap's files are symbolic links
		switch {
		case strings.HasPrefix(entry.Name(), ".."):
		case !s.DotFiles && strings.HasPrefix(entry.Name(), "."):
			f.skip(name, "its name begins with a dot")
		case errors.Is(err, os.ErrNotExist):
			f.skip(name, "it leads nowhere, or was removed meanwhile")
		case err != nil:
			return err
		case entry.IsDir(), info.IsDir() && ofConfigMap(name):
			if err := s.walk(name, f); err != nil {
				return err
			}
		case info.IsDir():
			f.skip(name, "it is a link to a directory")
		case !info.Mode().IsRegular():
			f.skip(name, "it is not a regular file")
		default:
			if f.files = append(f.files, name); len(f.files) > maxFiles {
				return fmt.Errorf("more than %d files: give a directory that has nothing but configurations", maxFiles)
			}
		}
	}
	return nil
}

// ofConfigMap reports whether a link is one of those that Kubernetes makes to the directories of a ConfigMap.
func ofConfigMap(link string) bool {
	target, err := os.Readlink(link)
	return err == nil && target == filepath.Join("..data", filepath.Base(link))
}

func (f *found) skip(name, why string) {
	if len(f.skipped) < maxWarnings {
		f.skipped = append(f.skipped, name+" is not read: "+why)
	}
}

// lookEvery is how long files must stay unchanged before they are used: editors and deployments write several times.
// Watch looks that often, and less often where a look takes more than a hundredth of it.
const lookEvery = 250 * time.Millisecond

// A Fingerprint identifies the contents of a Source.
type Fingerprint [sha256.Size]byte

// Watch calls changed after each change of the configuration's files, with the new configuration or the error, until
// the context ends. Known is the Fingerprint of the files that were loaded, so that no change since then is missed.
// Watch reads the files again and again, so that it needs no notice of the kernel's, follows every link on the way to
// them, and works on network file systems. Calls of changed do not overlap.
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

// look uses the files if they have changed and are the same as at the last look. What it compares is what it uses: the
// files may be written again meanwhile.
func (w *watching) look(changed func(*Config, error)) {
	files, found, err := w.source.read()
	now := fingerprint(files, err)
	settled := now == w.seen
	w.seen = now
	if now == w.last || !settled {
		return
	}
	w.last = now
	changed(w.source.parse(files, found, err))
}

// fingerprint returns the fingerprint of what read returned. Unreadable contents have one too.
func fingerprint(files []File, err error) Fingerprint {
	hash := sha256.New()
	if err != nil {
		hash.Write([]byte("unreadable " + err.Error()))
	}
	for _, file := range files {
		name, text := sha256.Sum256([]byte(file.Name)), sha256.Sum256(file.Text)
		hash.Write(name[:])
		hash.Write(text[:])
	}
	return Fingerprint(hash.Sum(nil))
}
