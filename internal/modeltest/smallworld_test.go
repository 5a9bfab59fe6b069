package modeltest

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redistest"
)

// In the small world a log is full at 8 entries, blocks have 4, an entry holds less than 2^8
// units, and sums are modulo 2^10. So chance meets what takes months of traffic elsewhere.
const (
	smallSlots  = 8
	mostOfEntry = 1<<8 - 1
)

// shrunk are the thresholds of the scripts of the log, and what they are in the small world.
var shrunk = map[string][][2]string{
	"log.lua": {
		{"slots < 100000", "slots < 8"},
		{"size = 100000", "size = 8"},
		{"2^48", "2^10"},
		{"2^40 - 1", "2^8 - 1"},
		{"entry_units < 2^40", "entry_units < 2^8"},
		{"slots < 64", "slots < 1"},
		{"slots < 4096", "slots < 5"},
		{"size <= 128", "size <= 5"},
		{"most = 8, 64, 56", "most = 1, 3, 2"},
		{"position + 8, head", "position + 1, head"},
	},
	"log_settle.lua": {
		{"slots >= 100000", "slots >= 8"},
		{"2^47", "2^9"},
		{"2^48", "2^10"},
		{"2^40 - 1", "2^8 - 1"},
	},
}

var blocks = regexp.MustCompile(`([%*/] )64\b`)

// small returns an edit of the scripts that makes them those of the small world, and then replaces one text of log.lua by another, if any.
func small(t testing.TB, is, becomes string) func(name, text string) string {
	return func(name, text string) string {
		if is != "" && name == "log.lua" {
			if n := strings.Count(text, is); n != 1 {
				t.Fatalf("%s has the text %q %d times", name, is, n)
			}
			text = strings.Replace(text, is, becomes, 1)
		}
		for _, s := range shrunk[name] {
			if !strings.Contains(text, s[0]) {
				t.Fatalf("%s has no threshold %q: the small world has to follow the script", name, s[0])
			}
			text = strings.ReplaceAll(text, s[0], s[1])
		}
		if shrunk[name] != nil && !blocks.MatchString(text) {
			t.Fatalf("%s has no blocks of 64 entries", name)
		}
		return blocks.ReplaceAllString(text, "${1}4")
	}
}

// A smallCharge is an admitted call.
type smallCharge struct {
	set   driver.Settlement
	at    time.Time
	units int64
	entry *smallEntry
}

// A smallEntry is what one entry of a log holds.
type smallEntry struct {
	at    time.Time
	units int64
}

// A smallLog is the definition of a log that forgets nothing but, when it is full, when its oldest units came.
type smallLog struct {
	charges []*smallCharge
	entries []*smallEntry
	keep    time.Duration
}

// used returns the units within a window: what was admitted less what was given back, and what the log may count.
func (l *smallLog) used(now time.Time, window time.Duration) (truth, most int64) {
	for _, c := range l.charges {
		if c.at.After(now.Add(-window)) {
			truth += c.units
		}
	}
	for _, e := range l.entries {
		if e.at.After(now.Add(-window)) {
			most += e.units
		}
	}
	return truth, most
}

func (l *smallLog) charge(now time.Time, req driver.Request, res driver.Answer) *smallCharge {
	if n := len(l.entries); n == 0 || !l.entries[n-1].at.Equal(now) {
		if n == smallSlots {
			if l.entries[0].at.After(now.Add(-l.keep)) {
				l.join()
			}
			l.entries = l.entries[1:]
		}
		l.entries = append(l.entries, &smallEntry{at: now})
	}
	last := l.entries[len(l.entries)-1]
	last.units += req.Cost
	c := &smallCharge{driver.Settlement{Request: req, At: res.At, Source: res.Source}, now, req.Cost, last}
	l.charges = append(l.charges, c)
	return c
}

// join adds the oldest entry to the next.
func (l *smallLog) join() {
	first, next := l.entries[0], l.entries[1]
	next.units = min(next.units+first.units, mostOfEntry)
	for _, c := range l.charges {
		if c.entry == first {
			c.entry = next
		}
	}
}

func (l *smallLog) settle(c *smallCharge, units int64) {
	c.units = units
	n := len(l.entries)
	if units < c.set.Request.Cost && c.entry.at != c.at && n < smallSlots {
		return // it has joined another, and is not looked for in a log that is not full: it leaves by itself
	}
	c.entry.units += units - c.set.Request.Cost
	if c.entry != l.entries[n-1] || c.entry.units > 0 {
		return
	}
	gone := c.entry.at.Add(-l.keep)
	for n > 0 && l.entries[n-1].units == 0 {
		n--
	}
	l.entries = l.entries[:n]
	for n > 0 && !l.entries[0].at.After(gone) {
		l.entries, n = l.entries[1:], n-1
	}
}

// smallWalk makes random calls on one key, under limits that differ from call to call, and settles some of them. It
// returns an error when a window holds more than its limit or a call is refused that has room.
func smallWalk(t testing.TB, server string, seed uint64, steps int, edit func(name, text string) string) error {
	rng := rand.New(rand.NewPCG(seed, 11))
	store, clock, _ := virtual(t, server, edit)
	limits := []sash.Limit{
		sash.Every(40, 100*time.Second), sash.Every(12, 20*time.Second), sash.Every(6, 5*time.Second), sash.Every(25, 60*time.Second),
	}
	key := fmt.Sprint("small ", seed)
	log := &smallLog{keep: 100 * time.Second}
	var held []*smallCharge
	for step := range steps {
		clock.Advance(time.Duration(rng.IntN(4000)*rng.IntN(2)) * time.Millisecond)
		now := clock.Now()
		if n := len(held); n > 0 && rng.IntN(3) == 0 {
			i := rng.IntN(n)
			c := held[i]
			held[i] = held[n-1]
			held = held[:n-1]
			if now.Before(time.UnixMicro(c.set.Expires())) {
				c.set.Units = []int64{0, 0, 0, 1, c.set.Request.Cost + 2}[rng.IntN(5)]
				if err := store.Settle(t.Context(), c.set); err != nil {
					return fmt.Errorf("step %d: %w", step, err)
				}
				log.settle(c, c.set.Units)
			}
		}
		chosen := limits
		if step > 0 {
			rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
			chosen = limits[:1+rng.IntN(len(limits))]
		}
		policy, err := sash.NewPolicy(nil, chosen...)
		if err != nil {
			return err
		}
		req := driver.Request{Key: key, Cost: int64(rng.IntN(4)), Policy: policy, MaySettle: true}
		if step == 0 {
			req.Cost = 1 // from now on the log keeps what the longest window needs
		}
		res, err := store.Decide(t.Context(), req)
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		for i, l := range limitsIn(policy) {
			truth, most := log.used(now, l.Window)
			switch refused := res.Refusals&(1<<i) != 0; {
			case !refused && res.Allowed() && req.Cost > 0 && truth+req.Cost > l.Units:
				return fmt.Errorf("step %d: %d are admitted under %v, which holds %d", step, req.Cost, l, truth)
			case refused && most+req.Cost <= l.Units:
				return fmt.Errorf("step %d: %d are refused under %v, which holds %d, or %d in a full log", step, req.Cost, l, truth, most)
			}
			if res.Allowed() {
				most += req.Cost
			}
			if left := res.Statuses()[i].Remaining; left != max(0, l.Units-most) {
				return fmt.Errorf("step %d: %d remain under %v, of which %d are in use", step, left, l, most)
			}
		}
		if req.Cost > 0 && res.Allowed() {
			if c := log.charge(now, req, res); rng.IntN(3) > 0 {
				held = append(held, c)
			}
		}
	}
	return nil
}

// limitsIn returns a policy's limits in its order.
func limitsIn(p *driver.Policy) []sash.Limit {
	limits := make([]sash.Limit, len(p.Limits))
	for i, l := range p.Limits {
		limits[i] = sash.Limit{Units: l.Units, Window: time.Duration(l.Window) * time.Microsecond}
	}
	return limits
}

// Chance finds in the small world what it does not find in the large one.
func TestTheSmallWorldCatches(t *testing.T) {
	server := redistest.Start(t)
	for _, m := range []mutant{
		{"hints of other limits outlive what joined", "math.max(limits, hinted)) end", "limits) end"},
		{"what joins is forgotten", "math.min(next + u, 2^40 - 1)", "next"},
		{"a full log drops its oldest entry", "if time <= cut then return false, false end", "if true then return false, true end"},
	} {
		t.Run(m.name, func(t *testing.T) {
			if _, err := server.Do("FLUSHALL"); err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(100) {
				if err := smallWalk(t, server.Addr(), seed, 400, small(t, m.old, m.new)); err != nil {
					t.Log(err)
					return
				}
			}
			t.Error("nothing was found wrong with it")
		})
	}
}

func TestTheSmallWorld(t *testing.T) {
	server := redistest.Start(t)
	for seed := range uint64(50) {
		if err := smallWalk(t, server.Addr(), seed, 400, small(t, "", "")); err != nil {
			t.Fatalf("walk %d: %v", seed, err)
		}
	}
}

// However many charges are settled upwards, the sums do not wrap: a log that holds too much is full.
func TestSettlementsDoNotWrapTheSums(t *testing.T) {
	server := redistest.Start(t)
	store, clock, _ := virtual(t, server.Addr(), small(t, "", ""))
	policy, err := sash.NewPolicy(nil, sash.Every(40, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	req := driver.Request{Key: "wraps", Cost: 1, Policy: policy, MaySettle: true}
	var sets []driver.Settlement
	for _, units := range []int64{mostOfEntry, mostOfEntry, mostOfEntry, mostOfEntry, 4} { // 2^10 in all
		res, err := store.Decide(t.Context(), req)
		if err != nil || !res.Allowed() {
			t.Fatalf("%v, %v", res.Allowed(), err)
		}
		sets = append(sets, driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: units})
		clock.Advance(time.Millisecond)
	}
	for _, set := range sets {
		if err := store.Settle(t.Context(), set); err != nil {
			t.Fatal(err)
		}
	}
	res, err := store.Decide(t.Context(), req)
	if err != nil || res.Allowed() || res.Remaining() != 0 {
		t.Errorf("allowed is %v, and %d of 40 remain after settlements of 1,024 (%v)", res.Allowed(), res.Remaining(), err)
	}
}
