package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// One decision over several subjects has one instant, however often the clock moves meanwhile.
func TestSeveralSubjectsAreChargedAtOneInstant(t *testing.T) {
	at := time.UnixMicro(1_700_000_000_000_000)
	s := memstore.New(&memstore.Options{Now: func() time.Time { at = at.Add(time.Microsecond); return at }})
	policy := newPolicy(t, nil, sash.PerSecond(3))
	for range 5 {
		for _, within := range []int64{0, driver.MaxAhead} {
			b := driver.Batch{Mode: driver.All}
			for i := range driver.MaxSubjects {
				req := driver.Request{Key: fmt.Sprint("k", i), Cost: 1, Policy: policy, Within: within}
				b.Ops = append(b.Ops, driver.Op{Settlement: driver.Settlement{Request: req}})
			}
			memstore.Check(t, b.Do(t.Context(), s))
			for i := range b.Ops {
				if one, first := &b.Ops[i].Answer, &b.Ops[0].Answer; one.At != first.At || one.Delay != first.Delay {
					t.Errorf("subject %d is decided at %d, %d ahead, and the first at %d, %d ahead", i, one.At, one.Delay, first.At, first.Delay)
				}
			}
		}
	}
}
