package memstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// filled is a store with every algorithm, a calendar limit and a settled reservation, and its snapshot.
func filled(t testing.TB) (*memstore.Store, []byte) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range sash.Algorithms() {
		opts := &sash.Options{Algorithm: a}
		if a == sash.SlidingBuckets {
			opts.Resolution = time.Second
		}
		limits := []sash.Limit{sash.PerHour(100)}
		if a == sash.SlidingLog || a == sash.FixedWindow {
			limits = append(limits, sash.PerCalendar(500, sash.CalendarDay, zone))
		}
		l, err := sash.New(store, opts, limits...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if _, err := l.AllowN(t.Context(), fmt.Sprint("key", i%4), int64(1+i%3)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
		}
		r, err := l.Reserve(t.Context(), "key0", 9)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Settle(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
	}
	var snapshot bytes.Buffer
	if err := store.Snapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	return store, snapshot.Bytes()
}

// A damaged snapshot is reported, and leaves an empty store that works.
func TestRestoreRefusesWhatIsNotWhole(t *testing.T) {
	_, whole := filled(t)
	refused := func(what string, r io.Reader, want error) {
		t.Helper()
		store := memstore.New(nil)
		if err := store.Restore(r); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		if got := store.Stats(); got != (memstore.Stats{MaxKeys: memstore.DefaultMaxKeys}) {
			t.Errorf("%s: %+v is left", what, got)
		}
		if res := allow(t, newLimiter(t, store, sash.SlidingLog, sash.PerHour(100)), "key0"); res.Remaining != 99 {
			t.Errorf("%s: %d left afterwards", what, res.Remaining)
		}
	}
	for n := range whole {
		refused(fmt.Sprintf("the first %d bytes", n), bytes.NewReader(whole[:n]), memstore.ErrSnapshot)
		changed := bytes.Clone(whole)
		changed[n] ^= 0x41
		refused(fmt.Sprintf("byte %d changed", n), bytes.NewReader(changed), memstore.ErrSnapshot)
	}
	broken := errors.New("disk")
	refused("a disk that fails", io.MultiReader(bytes.NewReader(whole[:100]), iotest.ErrReader(broken)), broken)
}

// A snapshot is taken while others decide: everything that was charged before is in it.
func TestSnapshotWhileOthersDecide(t *testing.T) {
	store, _ := newStore(t, 0)
	l := newLimiter(t, store, sash.SlidingLog, sash.PerHour(100_000))
	const keys = 3000
	for i := range keys {
		allow(t, l, fmt.Sprint(i))
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
					_, _ = l.Allow(t.Context(), fmt.Sprint(i%keys))
					_ = l.Reset(t.Context(), fmt.Sprint("gone", i%7))
					_, _ = l.Allow(t.Context(), fmt.Sprint("gone", i%7))
				}
			}
		})
	}
	var snapshot bytes.Buffer
	err := store.Snapshot(&snapshot)
	close(stop)
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newStore(t, 0)
	if err := other.Restore(&snapshot); err != nil {
		t.Fatal(err)
	}
	restored := newLimiter(t, other, sash.SlidingLog, sash.PerHour(100_000))
	for i := range keys {
		res, err := restored.Peek(t.Context(), fmt.Sprint(i))
		if err != nil || res.Remaining > 100_000-1 {
			t.Fatalf("key %d: %d left, %v", i, res.Remaining, err)
		}
	}
}

// The writer's error is returned.
func TestSnapshotReturnsTheWritersError(t *testing.T) {
	store, _ := filled(t)
	broken := errors.New("disk full")
	if err := store.Snapshot(failing{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Bytes from anywhere restore nothing or a store that works, and never panic.
func FuzzRestore(f *testing.F) {
	_, whole := filled(f)
	f.Add(whole)
	f.Add([]byte("sash memstore snapshot 3\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		store := memstore.New(&memstore.Options{MaxKeys: 1000})
		if store.Restore(bytes.NewReader(b)) != nil {
			return
		}
		if res := allow(t, newLimiter(t, store, sash.SlidingLog, sash.PerHour(100)), "new"); !res.Allowed {
			t.Error("a key that was not in it is refused")
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	store := memstore.New(nil)
	l := newLimiter(b, store, sash.SlidingLog, sash.PerHour(1000))
	for i := range 100_000 {
		if _, err := l.Allow(b.Context(), fmt.Sprint("user:", i)); err != nil {
			b.Fatal(err)
		}
	}
	var snapshot bytes.Buffer
	for b.Loop() {
		snapshot.Reset()
		if err := store.Snapshot(&snapshot); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(snapshot.Len())/100_000, "bytes/key")
}

// A snapshot of more keys than a store may hold leaves out those that expire first.
func TestRestoreKeepsTheCap(t *testing.T) {
	_, whole := filled(t)
	small := memstore.New(&memstore.Options{MaxKeys: 5, Now: func() time.Time { return time.Date(2026, 5, 4, 10, 2, 0, 0, time.UTC) }})
	if err := small.Restore(bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	if got := small.Stats(); got.Keys > 6 || got.Evicted == 0 {
		t.Errorf("%+v", got)
	}
}
