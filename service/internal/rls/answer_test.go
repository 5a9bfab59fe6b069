package rls

import (
	"testing"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
)

// The collector takes a share of the processor time of each call that grows with what it allocates.
func TestAnAnswerTakesFewAllocations(t *testing.T) {
	decider := servertest.Decider(t, memstore.New(nil), "domain: d\ndescriptors: [{key: ip, rate_limit: {unit: minute, requests_per_unit: 1000000}}]")
	counted := stats.New(nil)
	decider.Observe(counted.Observe)
	s := New(decider, &Options{Access: servertest.Gate(t, everything), Stats: counted})
	caller, req := s.opts.Access.Caller(t.Context()), request("ip=2001:db8::7")
	n := testing.AllocsPerRun(1000, func() {
		if _, err := s.answer(t.Context(), decide.GRPC, caller, req); err != nil {
			t.Fatal(err)
		}
	})
	if n > 15 {
		t.Errorf("an answer takes %v allocations", n)
	}
}
