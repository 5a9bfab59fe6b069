package config

import (
	"context"
	"crypto/sha256"
	"time"
)

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
