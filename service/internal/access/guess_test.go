package access

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAnAddressGuessesTenTokensAMinute(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := NewGuesses(func() time.Time { return now })
	const from = "192.0.2.7:1"
	answered := 0
	for range 1000 {
		if g.Withhold(from, false) == 0 {
			answered++
		}
	}
	if answered != MostGuesses {
		t.Errorf("%d guesses were answered within a minute", answered)
	}
	if wait := g.Withhold(from, true); wait != time.Minute {
		t.Errorf("the right token is withheld for %v", wait)
	}
	if g.Withhold("192.0.2.8:1", true) != 0 {
		t.Error("another address has to wait too")
	}
	now = now.Add(time.Minute)
	if wait := g.Withhold(from, true); wait != 0 {
		t.Errorf("a minute later the right token is withheld for %v", wait)
	}
}

func TestRightTokensAreNotCounted(t *testing.T) {
	g := NewGuesses(nil)
	for range 10 * MostGuesses {
		if wait := g.Withhold("192.0.2.7:1", true); wait != 0 {
			t.Fatalf("withheld for %v", wait)
		}
	}
}

func TestWhatCountsAsOneAddress(t *testing.T) {
	for name, c := range map[string]struct {
		one, other string
		same       bool
	}{
		"another port":              {"192.0.2.7:1", "192.0.2.7:2", true},
		"another address":           {"192.0.2.7:1", "192.0.2.8:1", false},
		"IPv4 as IPv6":              {"192.0.2.7:1", "[::ffff:192.0.2.7]:1", true},
		"another IPv4 as IPv6":      {"[::ffff:192.0.2.8]:1", "[::ffff:192.0.2.7]:1", false},
		"a network of IPv6":         {"[2001:db8::1]:1", "[2001:db8::ffff:2]:1", true},
		"another network of IPv6":   {"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		"another zone":              {"[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
		"peers of a Unix socket":    {"@", "", true},
		"a socket and this machine": {"@", "127.0.0.1:1", false},
	} {
		if same := guesser(c.one) == guesser(c.other); same != c.same {
			t.Errorf("%s: %s and %s count together: %v", name, guesser(c.one), guesser(c.other), same)
		}
	}
}

// A caller that sends all guesses at once gets no more answers.
func TestGuessesAtOnce(t *testing.T) {
	g := NewGuesses(nil)
	var group sync.WaitGroup
	var answered atomic.Int64
	for range 200 {
		group.Go(func() {
			if g.Withhold("192.0.2.7:1", false) == 0 {
				answered.Add(1)
			}
		})
	}
	group.Wait()
	if answered.Load() != MostGuesses {
		t.Errorf("%d guesses were answered", answered.Load())
	}
}

func TestGuessersAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := NewGuesses(func() time.Time { return now })
	for i := range 3 * guessers {
		g.Withhold(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), false)
	}
	if keys := g.store.Stats().Keys; keys > guessers*11/10 {
		t.Errorf("%d addresses are remembered", keys)
	}
}

// When as many addresses wait as are remembered, a wrong token of another one waits too, and a right one does not.
func TestNoMoreAddressesGuessThanAreRemembered(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := NewGuesses(func() time.Time { return now })
	answered := 0
	from := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255) }
	for i := range 2 * guessers {
		for range MostGuesses {
			if g.Withhold(from(i), false) == 0 {
				answered++
			}
		}
	}
	if most := (guessers + guessers/50) * MostGuesses; answered > most {
		t.Errorf("%d guesses were answered within a minute, want at most %d", answered, most)
	}
	if wait := g.Withhold("192.0.2.7:1", true); wait != 0 {
		t.Errorf("the right token of another address is withheld for %v", wait)
	}
	now = now.Add(time.Minute)
	if wait := g.Withhold("192.0.2.7:1", false); wait != 0 {
		t.Errorf("a minute later another address is withheld for %v", wait)
	}
}
