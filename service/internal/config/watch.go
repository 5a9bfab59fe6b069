package config

import (
	"context"
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long files must stay unchanged before they are used. Editors and deployments write several times.
const settleTime = 100 * time.Millisecond

// A Fingerprint identifies the contents of a Source.
type Fingerprint [sha256.Size]byte

// Watch calls changed after each change of the configuration's files, with the new configuration or the error, until
// the context ends. Known is the Fingerprint of the files that were loaded, so that no change since then is missed.
// Watch also notices when a symbolic link on the way to the files, such as that of a ConfigMap, points elsewhere. Calls
// of changed do not overlap. Watch returns an error if the first watch cannot be set up.
func (s Source) Watch(ctx context.Context, known Fingerprint, changed func(*Config, error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err := watcher.Add(existing(filepath.Dir(absolute(s.Path)))); err != nil {
		_ = watcher.Close()
		return err
	}
	w := &watching{source: s, watcher: watcher, last: known}
	w.follow()
	go w.run(ctx, changed)
	return nil
}

type watching struct {
	source  Source
	watcher *fsnotify.Watcher
	last    Fingerprint // of the files in use
	seen    Fingerprint // of the files at the last look
}

func (w *watching) run(ctx context.Context, changed func(*Config, error)) {
	defer func() { _ = w.watcher.Close() }()
	look := time.NewTimer(settleTime) // the first look finds changes from before the watch
	due := true                       // events until then change nothing: a busy directory cannot put it off for ever
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.watcher.Events:
			if !ok {
				return
			}
		case _, ok := <-w.watcher.Errors: // such as an overflow: check the files
			if !ok {
				return
			}
		case <-look.C:
			due = false
			w.follow()
			if w.settled(changed) {
				continue
			}
		}
		if !due {
			due = true
			look.Reset(settleTime)
		}
	}
}

// settled looks at the files, and uses them if they have changed and are the same as at the last look. It reports whether
// no further look is needed. What it compares is what it uses: the files may be written again meanwhile.
func (w *watching) settled(changed func(*Config, error)) bool {
	files, found, err := w.source.read()
	now := fingerprint(files, err)
	before := w.seen
	w.seen = now
	if now == w.last {
		return true
	}
	if now != before {
		return false
	}
	w.last = now
	changed(w.source.parse(files, found, err))
	return true
}

// follow watches every directory in which a change can affect the files: the directory of the path, those of the
// symbolic links in it, and the directory of the files.
func (w *watching) follow() {
	dirs := map[string]bool{}
	note := func(path string) {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			dirs[path] = true
		}
		dirs[existing(filepath.Dir(path))] = true
	}
	links := func(path string) {
		note(path)
		for range 40 { // the number of links that the kernel follows
			link, target := firstLink(path)
			if link == "" {
				break
			}
			note(link)
			path = target
			note(path)
		}
	}
	links(absolute(w.source.Path))
	if found, err := w.source.find(); err == nil {
		for _, dir := range found.dirs {
			note(dir)
		}
		for _, name := range found.files {
			if link, _ := os.Readlink(name); link != "" {
				links(absolute(name))
			}
		}
	}
	for _, old := range w.watcher.WatchList() {
		if !dirs[old] {
			_ = w.watcher.Remove(old)
		}
	}
	for dir := range dirs {
		_ = w.watcher.Add(dir) // the removal of a directory causes an event of its own
	}
}

// firstLink returns the first part of a path that is a symbolic link, and the path with that part resolved.
func firstLink(path string) (link, resolved string) {
	var parts []string
	for p := path; ; p = filepath.Dir(p) {
		parts = append(parts, p)
		if filepath.Dir(p) == p {
			break
		}
	}
	for i := len(parts) - 1; i >= 0; i-- {
		p := parts[i]
		target, err := os.Readlink(p)
		if err != nil {
			continue
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(p), target)
		}
		return p, filepath.Join(target, path[len(p):])
	}
	return "", path
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// existing returns the path, or the nearest existing directory above it.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || filepath.Dir(path) == path {
			return path
		}
		path = filepath.Dir(path)
	}
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
