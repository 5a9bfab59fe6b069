package admin

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAnAddressGuessesTenTokensAMinute(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := newGuesses(func() time.Time { return now })
	const from = "192.0.2.7:1"
	var group sync.WaitGroup // all guesses at once get no more answers
	var answered atomic.Int64
	for range 1000 {
		group.Go(func() {
			if g.withhold("192.0.2.8:1", true) != 0 {
				t.Error("another address has to wait too")
			}
			if g.withhold(from, false) == 0 {
				answered.Add(1)
			}
		})
	}
	group.Wait()
	if answered.Load() != mostGuesses {
		t.Errorf("%d guesses were answered within a minute", answered.Load())
	}
	if wait := g.withhold(from, true); wait != time.Minute {
		t.Errorf("the right token is withheld for %v", wait)
	}
	now = now.Add(time.Minute)
	if wait := g.withhold(from, true); wait != 0 {
		t.Errorf("a minute later the right token is withheld for %v", wait)
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

// Where more addresses wait than are remembered, the answer to a further one shows nothing that 401 does not, and no
// operator is locked out.
func TestMoreGuessersThanAreRemembered(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g := newGuesses(func() time.Time { return now })
	from := func(i int) string { return fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255) }
	waiting := 0
	for i := range guessers * 6 / 5 {
		for range mostGuesses {
			g.withhold(from(i), false)
		}
		wrong, right := g.withhold(from(i), false), g.withhold(from(i), true)
		if (wrong > 0) != (right > 0) {
			t.Fatalf("address %d: a wrong token is withheld for %v, the right one for %v", i, wrong, right)
		}
		if wrong > 0 {
			waiting++
		}
	}
	if waiting < guessers*9/10 || waiting > guessers*11/10 {
		t.Errorf("%d addresses wait, want about %d", waiting, guessers)
	}
	if wait := g.withhold("192.0.2.7:1", true); wait != 0 {
		t.Errorf("the right token of another address is withheld for %v", wait)
	}
}
