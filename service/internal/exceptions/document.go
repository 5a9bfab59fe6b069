package exceptions

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/redisclient"
)

// A keeper stores the document. Exceptions expire by its clock.
type keeper interface {
	// version returns the version of the document, or "" if there is none.
	version(context.Context) (string, error)
	// read returns the document, and the keeper's time.
	read(context.Context) (document, time.Time, error)
	// write replaces the document that has version instead. It reports false if the document has another version by
	// now. The document expires after life; zero means at once.
	write(ctx context.Context, instead string, doc document, life time.Duration) (bool, error)
}

// A document is a version of versionLength characters followed by all exceptions as JSON. Empty means none.
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

// parse returns the unexpired exceptions of a document, with times by this process's clock, which is ahead of the
// keeper's by ahead.
func (d document) parse(now time.Time, ahead time.Duration) ([]Exception, error) {
	if d == "" {
		return nil, nil
	}
	if len(d) < versionLength {
		return nil, errors.New("the document of overrides and bans is truncated")
	}
	var records []record
	if err := json.Unmarshal([]byte(d[versionLength:]), &records); err != nil {
		return nil, fmt.Errorf("the document of overrides and bans was not written by an instance: %w", err)
	}
	var out []Exception
	for _, r := range records[:min(len(records), Most)] {
		e := Exception{Kind: r.Kind, Domain: r.Domain, Entries: r.Entries, Limits: r.Limits, By: r.By, Reason: r.Reason}
		e.Since = time.UnixMilli(r.Since).Add(ahead)
		left := time.UnixMilli(r.Until).Add(ahead).Sub(now)
		if left <= 0 {
			continue
		}
		e.Until = now.Add(left) // by the monotonic clock, so that setting the wall clock does not affect expiry
		out = append(out, e.named())
	}
	return out, nil
}

// compose returns a document with a new version, and its lifetime. Times are by this process's clock.
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

// memory keeps the document in this process. A Book uses it for one call at a time.
type memory struct{ doc document }

func (m *memory) version(context.Context) (string, error) { return m.doc.version(), nil }

func (m *memory) read(context.Context) (document, time.Time, error) { return m.doc, time.Now(), nil }

func (m *memory) write(_ context.Context, _ string, doc document, _ time.Duration) (bool, error) {
	m.doc = doc
	return true, nil
}

// onRedis keeps the document in one key. It needs no permissions beyond those of the scripts that decide.
type onRedis struct {
	client *redisclient.Client
	key    string
}

//go:embed replace.lua
var replaceText string

// newOnRedis returns a keeper on a client, which the caller keeps owning. An empty prefix means redisstore.DefaultPrefix.
func newOnRedis(client *redisclient.Client, prefix string) *onRedis {
	prefix = cmp.Or(prefix, redisstore.DefaultPrefix)
	return &onRedis{client, prefix + "exceptions"}
}

func (r *onRedis) version(ctx context.Context) (string, error) {
	reply, err := r.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Getrange().Key(r.key).Start(0).End(versionLength - 1).Build()
	})
	if err != nil {
		return "", err
	}
	return reply.ToString()
}

func (r *onRedis) read(ctx context.Context) (document, time.Time, error) {
	now, err := r.client.Time(ctx)
	if err != nil {
		return "", now, err
	}
	reply, err := r.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Get().Key(r.key).Build() })
	if rueidis.IsRedisNil(err) {
		return "", now, nil
	}
	if err != nil {
		return "", now, err
	}
	text, err := reply.ToString()
	return document(text), now, err
}

func (r *onRedis) write(ctx context.Context, instead string, doc document, life time.Duration) (bool, error) {
	reply, err := r.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Eval().Script(replaceText).Numkeys(1).Key(r.key).Arg(instead, string(doc), strconv.FormatInt(max(1, life.Milliseconds()), 10)).Build()
	})
	if err != nil {
		return false, err
	}
	n, err := reply.AsInt64()
	return n == 1, err
}
