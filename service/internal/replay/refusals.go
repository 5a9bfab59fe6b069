package replay

import (
	"context"
	"math"
	"sort"
)

// refusals counts what pairs of sliding limits refuse, without a limiter: only clients above one of them are refused, and
// those are few. Each of the limits must be at least the one that it was made for. After an error it counts nothing.
type refusals struct {
	trace       *Trace
	clients     []refusable
	numbers     []int32 // by client of the trace: the place in clients, counted from 1
	short, long int64   // microseconds
	most        int64   // in any long window
	err         error   // the first
}

// A refusable is the peaks of a client that a limit can refuse.
type refusable struct{ burst, long int64 }

// refusals returns those of the clients above either limit.
func (t *Trace) refusals(burst, sustained *Demand, first, second int64) *refusals {
	r := &refusals{trace: t, short: burst.Window.Microseconds(), long: sustained.Window.Microseconds(), most: sustained.Quantile(1), numbers: make([]int32, len(t.clients))}
	for c := range t.clients {
		if burst.byClient[c] > first || sustained.byClient[c] > second {
			r.clients = append(r.clients, refusable{burst: burst.byClient[c], long: sustained.byClient[c]})
			r.numbers[c] = int32(len(r.clients))
		}
	}
	return r
}

// pack makes later counts read the requests of these clients only.
func (r *refusals) pack(ctx context.Context) {
	var numbers []int32
	seen := make([]bool, len(r.clients))
	part, err := r.trace.part(ctx, func(e *event) bool {
		n := r.numbers[e.client]
		if n > 0 && !seen[n-1] { // the part numbers clients in the order of their first requests
			seen[n-1] = true
			numbers = append(numbers, n)
		}
		return n > 0
	})
	r.trace, r.err, r.numbers = part, err, numbers
}

// count returns how many requests and clients a pair of limits refuses.
func (r *refusals) count(ctx context.Context, first, second int64) (requests int64, clients int) {
	held := make([]*holding, len(r.clients)) // nil for clients below both
	for i, c := range r.clients {
		if c.burst > first || c.long > second {
			held[i] = &holding{}
			clients++
		}
	}
	if r.err != nil || clients == 0 {
		return 0, 0
	}
	r.err = r.trace.each(ctx, func(e *event) error {
		n := r.numbers[e.client]
		if n == 0 || held[n-1] == nil {
			return nil
		}
		h := held[n-1]
		h.leave(e.at-r.short, e.at-r.long)
		if h.short+e.cost > first || h.long+e.cost > second {
			requests++
			return nil
		}
		h.admitted = append(h.admitted, charge{at: e.at, units: e.cost})
		h.short += e.cost
		h.long += e.cost
		return nil
	})
	return requests, clients
}

// A holding is what was admitted to a client within two windows that end now.
type holding struct {
	admitted            []charge // those in the long window, and at most as many before it
	shortTail, longTail int
	short, long         int64
}

func (h *holding) leave(short, long int64) {
	for h.shortTail < len(h.admitted) && h.admitted[h.shortTail].at <= short {
		h.short -= h.admitted[h.shortTail].units
		h.shortTail++
	}
	for h.longTail < len(h.admitted) && h.admitted[h.longTail].at <= long {
		h.long -= h.admitted[h.longTail].units
		h.longTail++
	}
	if gone := h.longTail; gone > 32 && gone > len(h.admitted)/2 {
		h.admitted = append(h.admitted[:0], h.admitted[gone:]...)
		h.shortTail -= gone
		h.longTail = 0
	}
}

// sustained returns the smallest sustained limit, at least the given one, with which a burst limit refuses at most a
// number of requests. It reports false if there is none whose product with the burst limit is below best, a logarithm.
func (r *refusals) sustained(ctx context.Context, first, least, most int64, best float64) (int64, bool) {
	fits := func(second int64) bool { n, _ := r.count(ctx, first, second); return n <= most }
	high := max(least, r.most)
	if bound := math.Exp(best - math.Log(float64(first))); bound < float64(high) {
		high = max(least, int64(bound))
	}
	if !fits(high) {
		return 0, false
	}
	return least + int64(sort.Search(int(high-least), func(i int) bool { return fits(least + int64(i)) })), true
}

// burst returns the smallest burst limit from least to first that, with a sustained limit, refuses at most a number of
// requests and of clients. The first does.
func (r *refusals) burst(ctx context.Context, least, first, second, most int64, clients int) int64 {
	return least + int64(sort.Search(int(max(0, first-least)), func(i int) bool {
		n, c := r.count(ctx, least+int64(i), second)
		return n <= most && c <= clients
	}))
}
