package scaling

import "fmt"

// What was measured, to say what lies beyond it.
const (
	mostPrimaries, mostInstances = 8, 8
	mostCalls, mostInstanceCalls = 32_000, 8_000
	mostSubjects, busySubjects   = 1_000_000, 10_000 // in all, and where the calls were measured
)

// Bytes of a further call of a subject: of Redis by benchmarks.md, and of memstore by its MaxKeys.
const (
	leastCallBytes, mostCallBytes = 12, 14
	leastHeldBytes, mostHeldBytes = 16, 32
)

// Names of the tables and their columns.
const (
	redisColumn   = "Redis µs a decision"
	serviceColumn = "all instances µs a decision"
	busiestStore  = "Sash coalesce, rueidis, one connection"
	clusterStore  = "Sash coalesce, rueidis"
	sameInAll     = ", same load in all"
	sameForEach   = ", same load each"
)

// measured is every figure that the arithmetic takes from the page.
type measured struct {
	redisBusy, serviceBusy     amount // µs of a decision, at the most calls
	redisCalls, serviceCalls   amount // a second, while they took that
	redisByInstances           amount // per cent for a doubling
	redisByPrimaries           amount
	redisBySubjects            amount
	redisByCalls               amount
	serviceByInstances         amount
	serviceByCalls             amount
	clientByPrimaries          amount // µs for a doubling
	redisByKeys, redisByLimits amount // µs for one more
	redisBytes, storeBytes     float64
}

func (p page) measured() (m measured, err error) {
	read := func(to *amount, from func() (amount, error)) {
		if err == nil {
			*to, err = from()
		}
	}
	slope := func(to *amount, of, row string) {
		read(to, func() (amount, error) { return p.slope("doubling the "+of, "%", "± %", row) })
	}
	read(&m.redisBusy, func() (amount, error) {
		return p.figure("store, calls a second", redisColumn, fmt.Sprintf("%s, %d", busiestStore, mostCalls))
	})
	read(&m.redisCalls, func() (amount, error) {
		return p.figure("store, calls a second", "decisions/s", fmt.Sprintf("%s, %d", busiestStore, mostCalls))
	})
	read(&m.serviceBusy, func() (amount, error) {
		return p.figure("calls a second on one instance", serviceColumn, fmt.Sprint(mostInstanceCalls))
	})
	read(&m.serviceCalls, func() (amount, error) {
		return p.figure("calls a second on one instance", "decisions/s", fmt.Sprint(mostInstanceCalls))
	})
	slope(&m.redisByInstances, "instances"+sameInAll, "Redis")
	slope(&m.redisByPrimaries, "primaries"+sameForEach, clusterStore+": Redis")
	slope(&m.redisBySubjects, "subjects", redisColumn)
	slope(&m.redisByCalls, "calls a second", busiestStore+": Redis")
	slope(&m.serviceByInstances, "instances"+sameForEach, "all instances")
	slope(&m.serviceByCalls, "calls a second on one instance", "all instances")
	read(&m.clientByPrimaries, func() (amount, error) {
		return p.slope("doubling the primaries"+sameInAll, "µs", "± µs", clusterStore+": client")
	})
	read(&m.redisByKeys, func() (amount, error) {
		return p.slope("doubling the keys", "µs for one more key", "± µs for one more", redisColumn)
	})
	read(&m.redisByLimits, func() (amount, error) {
		return p.slope("doubling the limits", "µs for one more limit", "± µs for one more", redisColumn)
	})
	for to, cell := range map[*float64][]string{
		&m.redisBytes: {"subjects", "bytes a subject", fmt.Sprint(mostSubjects)},
		&m.storeBytes: {"keys", "bytes a key", fmt.Sprint(mostSubjects), "1"},
	} {
		if err == nil {
			*to, err = p.number(cell[0], cell[1], cell[2:]...)
		}
	}
	return m, err
}
