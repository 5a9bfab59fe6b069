package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// A region agrees with the home also where every caller has less time than that takes.
func TestAnAgreementOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := newPlace(t, memstore.New(nil), memstore.New(nil), "here", 2, 10, sash.Every(1000, 10*time.Minute))
		here.cable.way = 100 * time.Millisecond // there and back; an agreement takes it twice
		admitted := 0
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			res, err := here.Allow(ctx, "k")
			cancel()
			if err == nil && res.Allowed {
				admitted++
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v, %v", res, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if admitted != 4 {
			t.Errorf("%d of 5 calls are admitted, 4 of which began after the agreement", admitted)
		}
		time.Sleep(10 * time.Second)
	})
}

// A stubborn store keeps its texts as they are while it is set.
type stubborn struct {
	driver.Passthrough
	set atomic.Bool
}

func (s *stubborn) Swap(ctx context.Context, key string, w driver.Swap) (driver.Swapped, error) {
	if s.set.Load() && w.New != w.Old {
		return driver.Swapped{}, errors.New("the text is not written")
	}
	return s.Passthrough.Swap(ctx, key, w)
}

// A region whose store does not record that the own share lasts longer has it for as long as was recorded before.
func TestARecordThatIsNotProlonged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := memstore.New(nil)
		here := newPlace(t, memstore.New(nil), near, "here", 2, 10, sash.Every(1000, 10*time.Minute))
		keeps := &stubborn{Passthrough: driver.Passthrough{Next: near}}
		here.store.own.near, here.store.own.store = keeps, keeps
		if err := here.store.Agree(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ownRefresh)
		keeps.set.Store(true)
		if err := here.store.Agree(t.Context()); err != nil {
			t.Error(err)
		}
		here.cable.cut.Store(true)
		if n, own, err := here.spend(200); n != 100 || own != 100 || err != nil {
			t.Errorf("%d are admitted, %d of the own share, %v", n, own, err)
		}
		time.Sleep(ownLasts)
		if n, _, err := here.spend(200); n != 0 || err == nil {
			t.Errorf("a day later %d are admitted, %v", n, err)
		}
		time.Sleep(10 * time.Second)
	})
}

// The own share lasts a day after the region was last connected. A day later regions can agree on something else.
func TestTermsChangeWhenTheAgreementHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := memstore.New(nil)
		limit := sash.Every(1000, time.Minute)
		old := newPlace(t, home, memstore.New(nil), "here", 2, 10, limit)
		if _, _, err := old.spend(1); err != nil {
			t.Fatal(err)
		}
		old.cable.cut.Store(true)
		late := newPlace(t, home, memstore.New(nil), "there", 2, 40, limit)
		for range 3 {
			time.Sleep(ownLasts / 4)
			if n, own, err := late.spend(1000); n != 800 || own != 0 || err != nil {
				t.Errorf("%d, %d of the own share, %v", n, own, err)
			}
			if n, own, err := old.spend(200); n != 100 || own != 100 || err != nil {
				t.Errorf("cut off: %d, %d of the own share, %v", n, own, err)
			}
		}
		time.Sleep(ownLasts/4 + time.Minute)
		if n, own, err := old.spend(200); n != 0 || !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("after a day: %d, %d of the own share, %v", n, own, err)
		}
		if n, own, err := late.spend(1000); n != 800 || own != 0 || err != nil {
			t.Errorf("while charges of the other may count: %d, %d of the own share, %v", n, own, err)
		}
		time.Sleep(ownLasts + 5*time.Minute)
		if n, own, err := late.spend(1000); n != 600 || own != 400 || err != nil {
			t.Errorf("%d, %d of the own share, %v", n, own, err)
		}
		time.Sleep(10 * time.Second)
	})
}

// While the home is silent a region does not ask it to agree for each call.
func TestTheAgreementIsSeldomAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here := newPlace(t, memstore.New(nil), memstore.New(nil), "here", 2, 10, sash.Every(1000, 10*time.Minute))
		here.cable.cut.Store(true)
		for range 100 {
			here.spend(10)
			time.Sleep(100 * time.Millisecond)
		}
		if n := here.cable.swaps.Load(); n < 2 || n > 6 {
			t.Errorf("asked %d times in ten seconds", n)
		}
		here.cable.cut.Store(false)
		time.Sleep(3 * time.Second)
		before := here.cable.swaps.Load()
		for range 100 {
			here.spend(1)
			time.Sleep(6 * time.Second)
		}
		if n := here.cable.swaps.Load() - before; n < 10 || n > 26 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		time.Sleep(10 * time.Second)
	})
}

func TestOwnsThatAreWrong(t *testing.T) {
	home, near := memstore.New(nil), memstore.New(nil)
	for _, own := range []Own{
		{"", 2, 10, near},
		{"two words", 2, 10, near},
		{strings.Repeat("n", 65), 2, 10, near},
		{"here", 0, 10, near},
		{"here", 65, 1, near},
		{"here", 2, 0, near},
		{"here", 4, 25, near},
		{"here", 2, 10, nil},
		{"here", 2, 10, struct{ driver.Store }{near}},
	} {
		if s, err := Shared(home, near, time.Second, &Options{Own: &own}); err == nil {
			t.Errorf("%+v: %v", own, s)
		}
	}
	if s, err := Shared(struct{ driver.Store }{home}, near, time.Second, &Options{Own: &Own{"here", 2, 10, near}}); err == nil {
		t.Errorf("a home that keeps no texts: %v", s)
	}
}

// What another version wrote is no agreement: nothing is asked of the home, and nothing is written over.
func TestTextsOfAgreements(t *testing.T) {
	a := agreement{terms{3, 10}, []member{{"here", "A", 12}, {"there", "B", 13}}}
	if b, err := readAgreement(a.text()); err != nil || b.text() != a.text() || !slices.Equal(a.members, b.members) {
		t.Errorf("%+v, %v", b, err)
	}
	r := record{process: "p\x00\xff", store: "A", terms: terms{3, 10}, until: 7}
	if b, err := readRecord(r.text()); err != nil || b != r {
		t.Errorf("%+v, %v", b, err)
	}
	for _, text := range []string{
		"2 3 10", "1 3", "1 3 10\n", "1 3 10\nhere A", "1 3 10\nhere A x", "1 3 10\nhere A -1", "1 0 10", "1 3 50", "x",
	} {
		if a, err := readAgreement(text); err == nil {
			t.Errorf("%q: %+v", text, a)
		}
	}
	for _, text := range []string{"1 00 A 3 10", "2 00 A 3 10 7", "1 0 A 3 10 7", "1 00 A 3 10 x"} {
		if r, err := readRecord(text); err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
	most := agreement{terms: terms{mostRegions, 1}}
	for i := range mostRegions {
		most.members = append(most.members, member{fmt.Sprint(strings.Repeat("n", 62), i), strings.Repeat("A", 26), time.Now().UnixMicro()})
	}
	if n := len(most.text()); n > driver.MaxText {
		t.Errorf("an agreement of all regions has %d bytes", n)
	}
	synctest.Test(t, func(t *testing.T) {
		home := memstore.New(nil)
		if _, err := home.Swap(t.Context(), regionsKey, driver.Swap{New: "another version", Lasts: 1e12}); err != nil {
			t.Fatal(err)
		}
		here := newPlace(t, home, memstore.New(nil), "here", 2, 10, sash.PerMinute(1000))
		if n, _, err := here.spend(10); n != 0 || !errors.Is(err, sash.ErrUnavailable) {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Registered compares an own share with what regions have agreed on, and writes nothing.
func TestRegistered(t *testing.T) {
	home := memstore.New(nil)
	if names, err := (&Own{Region: "here", Regions: 2, Percent: 10}).Registered(t.Context(), home); err != nil || len(names) > 0 {
		t.Errorf("%q, %v", names, err)
	}
	for _, name := range []string{"here", "there"} {
		if err := newPlace(t, home, memstore.New(nil), name, 2, 10, sash.PerMinute(100)).store.Agree(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for own, wrong := range map[Own]string{
		{Region: "here", Regions: 2, Percent: 10}: "",
		{Region: "here", Regions: 2, Percent: 20}: "other regions have agreed on",
		{Region: "more", Regions: 2, Percent: 10}: "2 regions have own shares already",
	} {
		names, err := own.Registered(t.Context(), home)
		if !slices.Equal(names, []string{"here", "there"}) || (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%+v: %q, %v", own, names, err)
		}
	}
}
