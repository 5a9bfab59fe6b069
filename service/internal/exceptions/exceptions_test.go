package exceptions

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/servertest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func decider(t *testing.T) *decide.Decider {
	t.Helper()
	return servertest.Decider(t, memstore.New(nil), "domain: d\ndescriptors:\n- {key: user, limits: [3/1h]}\n")
}

func connect(t *testing.T, addr string) *redisclient.Client {
	t.Helper()
	client := servertest.Must(redisclient.New("redis://" + addr))(t)
	t.Cleanup(client.Close)
	return client
}

func user(name string) []config.Entry { return []config.Entry{{Key: "user", Value: name}} }

func ban(name string) Exception {
	return Exception{Kind: Ban, Domain: "d", Entries: user(name), By: "a test"}
}

func admitted(t *testing.T, d *decide.Decider, name string) bool {
	t.Helper()
	return servertest.Must(d.Decide(t.Context(), decide.One("d", user(name), nil)))(t)[0].Allowed()
}

func put(t *testing.T, b *Book, e Exception, life time.Duration) Exception {
	t.Helper()
	return servertest.Must(b.Put(t.Context(), e, life))(t)
}

func TestAnExceptionHoldsUntilItEndsOrIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := decider(t)
		b := New(d, nil, "", quiet)
		made := put(t, b, ban("eve"), time.Minute)
		put(t, b, Exception{Kind: Override, Domain: "d", Entries: user("eve"), Limits: []string{"9/1h"}}, time.Hour)
		if admitted(t, d, "eve") || !admitted(t, d, "ann") {
			t.Error("the ban is not followed at once, or by others than eve")
		}
		if !made.Until.Equal(made.Since.Add(time.Minute)) || len(b.List(Ban)) != 1 || len(b.List(Override)) != 1 {
			t.Errorf("made %+v, listed %+v and %+v", made, b.List(Ban), b.List(Override))
		}
		<-time.After(time.Minute)
		if !admitted(t, d, "eve") || len(b.List(Ban)) != 0 {
			t.Error("the ban goes on after its end")
		}
		gone, found, err := b.Delete(t.Context(), Override, b.List(Override)[0].ID)
		if err != nil || !found || gone.Limits[0] != "9/1h" || len(b.List(Override)) != 0 {
			t.Errorf("deleted %+v, %v, %v", gone, found, err)
		}
		if _, found, err := b.Delete(t.Context(), Override, gone.ID); found || err != nil {
			t.Errorf("deleted twice: %v, %v", found, err)
		}
		if v, _ := d.Decide(t.Context(), decide.One("d", user("eve"), nil)); v[0].Limits[0].Limit.Name != "3/1h" {
			t.Errorf("after the override: %+v", v)
		}
	})
}

func TestWhatCannotBeKept(t *testing.T) {
	b := New(decider(t), nil, "", quiet)
	override := func(limits ...string) Exception {
		return Exception{Kind: Override, Domain: "d", Entries: user("a"), Limits: limits}
	}
	long, reason := ban(strings.Repeat("x", maxText)), ban("a")
	reason.Reason = strings.Repeat("x", maxReason+1)
	networks := func(values ...string) Exception { // at several levels multiply what a lookup visits: 63 ms with 10,000 bans
		e := Exception{Kind: Ban, Domain: "d"}
		for _, value := range values {
			e.Entries = append(e.Entries, config.Entry{Key: "user", Value: value})
		}
		return e
	}
	for name, c := range map[string]struct {
		e    Exception
		life time.Duration
		fail error
	}{
		"one network":     {networks("192.0.2.0/24"), time.Hour, nil},
		"two networks":    {networks("a", "::/0", "192.0.2.7", "::ffff:10.0.0.0/104"), time.Hour, ErrInvalid},
		"too short":       {ban("a"), Shortest - 1, ErrInvalid},
		"too long":        {ban("a"), Longest + 1, ErrInvalid},
		"long entries":    {long, time.Hour, ErrInvalid},
		"a long reason":   {reason, time.Hour, ErrInvalid},
		"no limits":       {override(), time.Hour, ErrInvalid},
		"not a limit":     {override("many"), time.Hour, sash.ErrInvalidLimit},
		"an odd domain":   {Exception{Kind: Ban, Domain: "e", Entries: user("a")}, time.Hour, config.ErrUnknownDomain},
		"nobody's limits": {Exception{Kind: Override, Domain: "d", Entries: []config.Entry{{Key: "x"}}, Limits: []string{"1/1m"}}, time.Hour, decide.ErrNotLimited},
	} {
		if _, err := b.Put(t.Context(), c.e, c.life); !errors.Is(err, c.fail) {
			t.Errorf("%s: %v, want %v", name, err, c.fail)
		}
		if err := b.Effect(c.e); !errors.Is(err, c.fail) && c.life == time.Hour {
			t.Errorf("%s: its effect is %v, want %v", name, err, c.fail)
		}
	}
}

// holding returns a book that keeps n bans of subjects that begin with a text.
func holding(t *testing.T, n int, prefix string) (*Book, []Exception) {
	t.Helper()
	b, now, all := New(decider(t), nil, "", quiet), time.Now(), make([]Exception, n)
	for i := range all {
		all[i] = ban(prefix + strconv.Itoa(i))
		all[i].Since, all[i].Until = now, now.Add(time.Hour)
	}
	doc, _, err := compose(all, now, 0)
	servertest.Check(t, err)
	b.keeper.doc = doc
	if _, err := b.Put(t.Context(), ban("one more"), time.Hour); !errors.Is(err, ErrFull) {
		t.Errorf("%d bytes of %d exceptions, and one more: %v", len(doc), n, err)
	}
	return b, all
}

func TestTheNumberAndTheBytesAreBounded(t *testing.T) {
	holding(t, Most-1, strings.Repeat("x", maxDocument/Most))
	b, all := holding(t, Most, "")
	put(t, b, ban("7"), time.Hour) // in the place of another
	if _, found, err := b.Delete(t.Context(), Ban, all[8].named().ID); !found || err != nil {
		t.Fatalf("%v, %v", found, err)
	}
	put(t, b, ban("one more"), time.Hour)
}

// A ban from before its key was secret holds under the name of the secret, and the next change takes the value from the document.
func TestAnExceptionFromBeforeItsKeyWasSecret(t *testing.T) {
	d := decider(t)
	b := New(d, nil, "", quiet)
	put(t, b, ban("s3cret"), time.Hour)
	rules := config.File{Name: "x.yaml", Text: []byte("domain: d\ndescriptors:\n- {key: user, secret: true, limits: [3/1h]}\n")}
	servertest.Check(t, d.Use(servertest.Must(config.Parse(config.Defaults{}, false, rules))(t)))
	b.Refresh(t.Context())
	all := b.List(Ban)
	if len(all) != 1 || strings.Contains(all[0].Subject, "s3cret") || !strings.HasPrefix(all[0].Entries[0].Value, "hmac-") || admitted(t, d, "s3cret") {
		t.Errorf("%+v", all)
	}
	if again := put(t, b, ban("s3cret"), time.Hour); again.ID != all[0].ID || len(b.List(Ban)) != 1 {
		t.Errorf("set again: %+v", b.List(Ban))
	}
	if doc := string(b.keeper.doc); strings.Contains(doc, "s3cret") {
		t.Errorf("the document has it still: %s", doc)
	}
}

// A clock that is wrong by an hour changes nothing: the keeper's clock decides when an exception ends.
func TestClocksMayDiffer(t *testing.T) {
	now := time.Now()
	e := ban("eve")
	e.Since, e.Until = now, now.Add(time.Minute)
	doc, life, err := compose([]Exception{e}, now, time.Hour) // this process is ahead of Redis
	if err != nil || life != time.Minute {
		t.Fatalf("%v, %v", life, err)
	}
	there, err := doc.parse(now.Add(-3*time.Hour), -2*time.Hour) // another one is behind
	if err != nil || len(there) != 1 || there[0].Until.Sub(now.Add(-3*time.Hour)).Round(time.Second) != time.Minute {
		t.Errorf("%+v, %v", there, err)
	}
}

func onServer(t *testing.T, addr string, log *slog.Logger) (*Book, *decide.Decider) {
	t.Helper()
	client := connect(t, addr)
	d := decider(t)
	return New(d, client, "", log), d
}

// An exception that one instance records applies on the other, and simultaneous changes of both are all kept.
func TestInstancesShareExceptions(t *testing.T) {
	server := redistest.Start(t)
	a, _ := onServer(t, server.Addr(), quiet)
	b, other := onServer(t, server.Addr(), quiet)
	b.Refresh(t.Context())
	made := put(t, a, ban("eve"), time.Hour)
	if !admitted(t, other, "eve") {
		t.Error("it is followed before it was read")
	}
	b.Refresh(t.Context())
	if admitted(t, other, "eve") || b.List(Ban)[0].By != "a test" || b.List(Ban)[0].ID != made.ID {
		t.Errorf("the other instance knows %+v", b.List(Ban))
	}
	if left, _ := server.Must(t, "PTTL", "sash:exceptions").(int64); left < 3_500_000 || left > 3_600_000 {
		t.Errorf("the key lives for %d ms", left)
	}
	var wg sync.WaitGroup
	for i := range 10 {
		for _, book := range []*Book{a, b} {
			name := strconv.Itoa(i) + "b"
			if book == a {
				name = strconv.Itoa(i) + "a"
			}
			wg.Go(func() {
				for {
					if _, err := book.Put(t.Context(), ban(name), time.Hour); err == nil {
						return
					}
				}
			})
		}
	}
	wg.Wait()
	a.Refresh(t.Context())
	if n := len(a.List(Ban)); n != 21 {
		t.Errorf("%d bans are kept, want 21", n)
	}
	if _, found, err := b.Delete(t.Context(), Ban, made.ID); !found || err != nil {
		t.Errorf("deleted by the other: %v, %v", found, err)
	}
	a.Refresh(t.Context())
	if n := len(a.List(Ban)); n != 20 {
		t.Errorf("%d bans are left, want 20", n)
	}
}

// A document is written only over the one that it was made from.
func TestADocumentThatChangedMeanwhileStays(t *testing.T) {
	k := &keeper{client: connect(t, redistest.Start(t).Addr()), key: "sash:exceptions"}
	first, second := document("first version 16[]"), document("another version [1]")
	for _, step := range []struct {
		instead string
		doc     document
		written bool
		then    document
	}{
		{"no such version!", first, false, ""},
		{"", first, true, first},
		{"", second, false, first},
		{second.version(), second, false, first},
		{first.version(), second, true, second},
	} {
		written, err := k.write(t.Context(), step.instead, step.doc, time.Hour)
		doc, _, failed := k.read(t.Context())
		begins, err2 := k.get(t.Context(), versionLength-1)
		if err != nil || failed != nil || err2 != nil || written != step.written || doc != step.then || string(begins) != step.then.version() {
			t.Errorf("%q in the place of %q: written %v, then %q, %q; %v, %v, %v", step.doc, step.instead, written, doc, begins, err, failed, err2)
		}
	}
}

// While Redis is down, the exceptions read last hold and none can be changed. A Redis that comes back empty has none.
func TestWhileRedisIsAway(t *testing.T) {
	server := redistest.Start(t)
	var logs bytes.Buffer
	b, d := onServer(t, server.Addr(), slog.New(slog.NewTextHandler(&logs, nil)))
	put(t, b, ban("eve"), time.Hour)
	server.Stop()
	for range 3 {
		b.Refresh(t.Context())
	}
	if admitted(t, d, "eve") || failed(b) == nil || len(b.List(Ban)) != 1 {
		t.Errorf("without Redis: %+v, %+v", b.List(Ban), failed(b))
	}
	if n := strings.Count(logs.String(), "cannot be read"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, &logs)
	}
	if _, err := b.Put(t.Context(), ban("mallory"), time.Hour); err == nil {
		t.Error("a change is taken")
	}
	server.Restart()
	servertest.Wait(t, "the exceptions are not read again", func() bool { b.Refresh(t.Context()); return failed(b) == nil })
	if !admitted(t, d, "eve") {
		t.Errorf("from an empty Redis: %+v, %+v", b.List(Ban), failed(b))
	}
}

func TestADocumentWrittenByHand(t *testing.T) {
	server := redistest.Start(t)
	b, d := onServer(t, server.Addr(), quiet)
	put(t, b, ban("eve"), time.Hour)
	for _, text := range []string{"short", "0123456789abcdef{", "0123456789abcdef[{\"kind\":1}]"} {
		server.Must(t, "SET", "sash:exceptions", text)
		b.Refresh(t.Context())
		if admitted(t, d, "eve") || failed(b) == nil {
			t.Errorf("%s: %+v", text, failed(b))
		}
	}
	text := `0123456789abcdef[{"kind":"override","domain":"d","entries":[{"key":"user","value":"ann"}],"limits":["x"],"until":99999999999999}]`
	server.Must(t, "SET", "sash:exceptions", text)
	b.Refresh(t.Context())
	if v, err := d.Decide(t.Context(), decide.One("d", user("ann"), nil)); err != nil || v[0].Limits[0].Limit.Name != "3/1h" {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(decider(t), nil, "", quiet)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		synctest.Wait()
		put(t, b, ban("eve"), time.Second)
		<-time.After(3 * time.Second)
		b.mu.Lock()
		if len(b.held) != 0 {
			t.Error("what has ended is not forgotten")
		}
		b.mu.Unlock()
		stop()
		servertest.Check(t, <-ended)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func failed(b *Book) error {
	_, err := b.Status()
	return err
}
