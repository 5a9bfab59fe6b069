package modeltest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
	"example.com/sash/storetest/oracle"
)

// In the small world a log is full at 8 entries, blocks have 4, an entry holds less than 2^8 units, and sums are modulo
// 2^10. So chance meets what takes months of traffic elsewhere.
var small = threshold.Scripts.But(threshold.Table{
	"MOST_ENTRIES": smallSlots, "MOST_OF_ENTRY": mostOfEntry,
	"SUM_MODULUS": 1 << 10, "MOST_SUM": 1<<9 - 1, "BLOCK": 4,
	"LOOK_NEAR": 1, "WALK_NEAR": 1, "WALK_FAR": 3, "FOURFOLD_RING": 1, "QUARTERS_RING": 5, "SMALL_RING": 5,
})

const (
	smallSlots  = 8
	mostOfEntry = 1<<8 - 1
)

// virtualSmall is virtual in the small world.
func virtualSmall(t testing.TB, addr string, edit func(name, text string) string) (*redisstore.Store, *oracle.Clock, *scripter) {
	store, clock, scripts := virtual(t, addr, edit)
	scripts.thresholds = small
	return store, clock, scripts
}

// replaced returns an edit that replaces one text of a script, with the names of its thresholds.
func replaced(t testing.TB, script, is, becomes string) func(name, text string) string {
	is, becomes = small.Put(is), small.Put(becomes)
	return func(name, text string) string {
		if name != script {
			return text
		}
		if n := strings.Count(text, is); n != 1 {
			t.Fatalf("%s has the text %q %d times", name, is, n)
		}
		return strings.Replace(text, is, becomes, 1)
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
	store, clock, _ := virtualSmall(t, server, edit)
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
		{"what joins is forgotten", "math.min(next + u, MOST_OF_ENTRY)", "next"},
		{"a full log drops its oldest entry", "if time <= cut then return false, false end", "if true then return false, true end"},
	} {
		t.Run(m.name, func(t *testing.T) {
			if _, err := server.Do("FLUSHALL"); err != nil {
				t.Fatal(err)
			}
			for seed := range uint64(100) {
				if err := smallWalk(t, server.Addr(), seed, 400, replaced(t, "log.lua", m.old, m.new)); err != nil {
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
		if err := smallWalk(t, server.Addr(), seed, 400, nil); err != nil {
			t.Fatalf("walk %d: %v", seed, err)
		}
	}
}

// However many charges are settled upwards, the sums do not wrap: a log that holds too much is full.
func TestSettlementsDoNotWrapTheSums(t *testing.T) {
	server := redistest.Start(t)
	store, clock, _ := virtualSmall(t, server.Addr(), nil)
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
