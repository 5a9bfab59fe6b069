package serve

import (
	"math"
	"runtime"
	"runtime/metrics"
)

// garbage is how much of it the service lets gather at least before the collector runs. The collector would otherwise run
// for every 4 MB in a service with few subjects, a hundred times a second under load, which is a sixth of its processor
// time.
const garbage = 32 << 20

// spareCollector makes the collector wait for garbage, until end is called. It does nothing where GOGC or GOMEMLIMIT says
// how much memory the service may use.
func spareCollector() (end func()) {
	chosen := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
	metrics.Read(chosen)
	if chosen[0].Value.Uint64() != 100 || chosen[1].Value.Uint64() != math.MaxInt64 {
		return func() {}
	}
	unused := make([]byte, garbage) // counts as in use, and is never written, so that the system has no memory for it
	return func() { runtime.KeepAlive(unused) }
}
