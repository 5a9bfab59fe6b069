package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// mostRoutes bounds the number of route names, because paths can be unlimited. The rest are one route.
const mostRoutes = 100_000

const otherRoutes = "(other routes)"

// A Builder collects requests. Its zero value is empty, and holds all of them in memory. It is not safe for concurrent
// use.
type Builder struct {
	// Memory is how many bytes the requests and the names of clients and routes should take. The requests beyond it go to
	// a temporary file. Zero is no bound. Set it before the first call.
	Memory int64
	// Names is how many bytes the names of clients and routes may take. More are [ErrMemory], because names cannot go to a
	// file. Zero is no bound.
	Names int64
	// Folder is where the temporary file is. Empty is [os.TempDir].
	Folder string

	trace   Trace
	pending []event // a batch, not sorted
	added   uint64
	clients map[string]uint32
	routes  map[string]uint32
	names   int64 // bytes of clients and routes
	latest  int64
	sizes   sizes // zero is defaultSizes
	err     error
}

// bytesPerName is the memory of a client or a route besides its name: in the map and in the trace.
const bytesPerName = 160

// Skip counts a request that a filter left out.
func (b *Builder) Skip() { b.trace.counts.Filtered++ }

// Throttled counts a request that was refused according to the log.
func (b *Builder) Throttled() { b.trace.counts.Throttled++ }

// Add adds a request at a time in microseconds since the Unix epoch. After an error, see Err, it adds nothing.
func (b *Builder) Add(at int64, s Selection) {
	if b.err != nil {
		return
	}
	if s.Key == "" || s.Cost <= 0 || s.Rule < 0 {
		b.trace.counts.Unlimited++
		return
	}
	if b.clients == nil {
		b.clients, b.routes = make(map[string]uint32), make(map[string]uint32)
		b.sizes = cmp.Or(b.sizes, defaultSizes)
		b.trace.events.sizes, b.trace.events.folder = b.sizes, b.Folder
	}
	t := &b.trace
	number, known := b.clients[s.Key]
	if !known {
		number = uint32(len(t.clients))
		name := strings.Clone(s.Key) // without retaining the line around it
		b.clients[name] = number
		t.clients = append(t.clients, client{name: name, key: strconv.FormatUint(uint64(number), 36), rule: s.Rule})
		b.names += int64(len(name)) + bytesPerName
	}
	t.clients[number].requests++
	if b.latest > at && t.counts.Requests > 0 {
		t.counts.Late++
	} else {
		b.latest = at
	}
	t.fractions = t.fractions || at%1_000_000 != 0
	t.counts.Requests++
	route := b.route(s.Route)
	w := &t.weights[route]
	w.requests, w.bytes, w.seconds = w.requests+1, w.bytes+s.Bytes, w.seconds+s.Seconds
	b.pending = append(b.pending, event{at: at, cost: s.Cost, order: b.added, client: number, route: route, class: s.Class})
	if b.added++; len(b.pending) >= b.sizes.batch {
		b.err = b.flush()
	}
}

func (b *Builder) route(name string) uint32 {
	if number, known := b.routes[name]; known {
		return number
	}
	if len(b.routes) >= mostRoutes {
		if name == otherRoutes {
			return b.newRoute(name)
		}
		return b.route(otherRoutes)
	}
	return b.newRoute(strings.Clone(name))
}

func (b *Builder) newRoute(name string) uint32 {
	number := uint32(len(b.trace.routes))
	b.routes[name] = number
	b.trace.routes, b.trace.weights = append(b.trace.routes, name), append(b.trace.weights, weight{})
	b.names += int64(len(name)) + bytesPerName
	return number
}

// flush sorts and packs the pending events, and writes what is beyond the memory.
func (b *Builder) flush() error {
	s, most := &b.trace.events, int64(math.MaxInt64)
	if !slices.IsSortedFunc(b.pending, inOrder) {
		slices.SortFunc(b.pending, inOrder)
	}
	s.add(b.pending)
	b.pending = b.pending[:0]
	if b.Names > 0 && b.names > b.Names {
		return fmt.Errorf("%w: so far it has %d clients and %d routes, whose names take more than %d MB: charge fewer subjects, such as prefix(remote_address, 24), or allow more memory",
			ErrMemory, len(b.trace.clients), len(b.trace.routes), b.Names/1_000_000)
	}
	if b.Memory > 0 {
		if most = max(0, b.Memory-b.names); s.held > most {
			if err := s.write(); err != nil {
				return err
			}
		}
	}
	if len(s.runs) > b.sizes.runs {
		return s.merge(most)
	}
	return nil
}

// Err returns the first error of an Add: of the temporary file, or [ErrMemory]. A caller that adds many requests should
// stop then.
func (b *Builder) Err() error { return b.err }

// Trace returns the added requests in time order. If there was an error, see Err, all methods of the trace return it.
// The Builder is empty afterwards.
func (b *Builder) Trace() *Trace {
	if b.err == nil && len(b.pending) > 0 {
		b.err = b.flush()
	}
	t := b.trace
	t.err, t.memory = b.err, b.Memory
	*b = Builder{Memory: b.Memory, Names: b.Names, Folder: b.Folder}
	if t.err != nil {
		t.events.release()
	}
	t.events.finish()
	return &t
}
