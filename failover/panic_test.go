package failover_test

import (
	"context"
	"testing"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/internal/drivertest"
	"example.com/sash/memstore"
)

// Whatever a store leaves in a batch when it panics is an error of this call.
func TestAStoreThatPanicsInTheMiddleOfABatch(t *testing.T) {
	store := failover.Must(failover.New(drivertest.Over(memstore.New(nil), func(_ context.Context, b *driver.Batch) error {
		b.Chosen = len(b.Ops)
		panic("broken")
	}), nil))(t)
	policy := &driver.Policy{Limits: []driver.Limit{{Units: 5, Window: 1e6}}}
	if _, err := driver.Decide(t.Context(), store, driver.Request{Key: "k", Cost: 1, Policy: policy}); err == nil {
		t.Error("no error")
	}
}

// Of operations of several kinds each is answered by itself, in any order: also those that the store cannot carry out now.
func TestChargesAndSettlementsTogether(t *testing.T) {
	down := drivertest.Over(memstore.New(nil), func(context.Context, *driver.Batch) error { return context.DeadlineExceeded })
	store := failover.Must(failover.New(down, &failover.Options{Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Open}}}}))(t)
	req := driver.Request{Key: "k", Cost: 1, Policy: &driver.Policy{Limits: []driver.Limit{{Units: 5, Window: 1e6}}}}
	b := driver.Batch{Mode: driver.Each, Ops: []driver.Op{
		{Kind: driver.Settle, Settlement: driver.Settlement{Request: req}}, {Settlement: driver.Settlement{Request: req}},
	}}
	if err := b.Do(t.Context(), store); err != nil || b.Ops[0].Err == nil || b.Ops[1].Err != nil || b.Ops[1].Answer.Source != driver.FromPolicy {
		t.Errorf("%v: %v, %v, %v", err, b.Ops[0].Err, b.Ops[1].Err, b.Ops[1].Answer)
	}
}
