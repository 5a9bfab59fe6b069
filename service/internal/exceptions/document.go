package exceptions

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"example.com/sash/service/internal/config"
)

// A keeper keeps the document. Its clock tells the ends of exceptions.
type keeper interface {
	// version returns the version of the document; empty where there is none.
	version(context.Context) (string, error)
	// read returns the document, and the keeper's time.
	read(context.Context) (document, time.Time, error)
	// write puts a document in the place of the one with a version, and reports false when that is not the
	// version any more. The document goes by itself after life; zero is now.
	write(ctx context.Context, instead string, doc document, life time.Duration) (bool, error)
}

// A document is all exceptions as text, after a version of versionLength characters. Empty is none.
type document string

const versionLength = 16

func (d document) version() string { return string(d[:min(len(d), versionLength)]) }

// A record is one exception of a document.
type record struct {
	Kind    Kind           `json:"kind"`
	Domain  string         `json:"domain"`
	Entries []config.Entry `json:"entries"`
	Limits  []string       `json:"limits,omitempty"`
	Since   int64          `json:"since"` // milliseconds since the Unix epoch, by the keeper's clock
	Until   int64          `json:"until"`
	By      string         `json:"by,omitempty"`
	Reason  string         `json:"reason,omitempty"`
}

// parse returns the exceptions of a document that have not ended, with times of this process's clock: ahead is
// how much later that is than the keeper's.
func (d document) parse(now time.Time, ahead time.Duration) ([]Exception, error) {
	if d == "" {
		return nil, nil
	}
	if len(d) < versionLength {
		return nil, errors.New("the document of overrides and bans is cut off")
	}
	var records []record
	if err := json.Unmarshal([]byte(d[versionLength:]), &records); err != nil {
		return nil, fmt.Errorf("the document of overrides and bans is not what an instance wrote: %w", err)
	}
	var out []Exception
	for _, r := range records[:min(len(records), Most)] {
		e := Exception{Kind: r.Kind, Domain: r.Domain, Entries: r.Entries, Limits: r.Limits, By: r.By, Reason: r.Reason}
		e.Since = time.UnixMilli(r.Since).Add(ahead)
		left := time.UnixMilli(r.Until).Add(ahead).Sub(now)
		if left <= 0 {
			continue
		}
		e.Until = now.Add(left) // with the monotonic clock, so that it ends then whatever becomes of the other
		out = append(out, e.named())
	}
	return out, nil
}

// compose makes a document with a new version, and how long it has to live. Times are of this process's clock.
func compose(all []Exception, now time.Time, ahead time.Duration) (document, time.Duration, error) {
	records := make([]record, len(all))
	var life time.Duration
	for i, e := range all {
		records[i] = record{
			Kind: e.Kind, Domain: e.Domain, Entries: e.Entries, Limits: e.Limits, By: e.By, Reason: e.Reason,
			Since: e.Since.Add(-ahead).UnixMilli(), Until: e.Until.Add(-ahead).UnixMilli(),
		}
		life = max(life, e.Until.Sub(now))
	}
	text, err := json.Marshal(records)
	return document(rand.Text()[:versionLength] + string(text)), life, err
}
