package serve

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// goal is the size of the heap at which the collector runs next.
func goal() uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestTheCollectorWaitsForGarbage(t *testing.T) {
	before := goal()
	end := spareCollector()
	if more := goal() - before; more < garbage || more > 3*garbage {
		t.Errorf("the collector runs after %d bytes more, want about %d", more, 2*garbage)
	}
	end()
	if after := goal(); after > before+garbage/2 {
		t.Errorf("then it runs at %d bytes, before at %d", after, before)
	}
	for what, choose := range map[string]func() (undo func()){
		"GOGC":       func() func() { p := debug.SetGCPercent(50); return func() { debug.SetGCPercent(p) } },
		"GOMEMLIMIT": func() func() { debug.SetMemoryLimit(1 << 30); return func() { debug.SetMemoryLimit(math.MaxInt64) } },
	} {
		undo := choose()
		before := goal()
		end := spareCollector()
		if after := goal(); after > before+garbage/2 {
			t.Errorf("with %s it runs at %d bytes, before at %d", what, after, before)
		}
		end()
		undo()
	}
}
