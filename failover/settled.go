package failover

import "container/heap"

// mostSettled bounds the IDs of settlements that are remembered. Beyond it, those whose charge leaves first are
// forgotten; such a settlement counts again if it is repeated.
const mostSettled = 100_000

// settlements are the IDs of settlements that were applied to the backlog, until their charge has left.
type settlements struct {
	known  map[string]struct{}
	leaves leaving
}

// first reports whether an ID is new, and remembers it until an instant, in microseconds since the epoch.
// The empty ID is always new. Each call forgets more IDs that have left than it adds.
func (s *settlements) first(id string, now, until int64) bool {
	for range 4 {
		if len(s.leaves) == 0 || s.leaves[0].at > now && len(s.leaves) < mostSettled {
			break
		}
		delete(s.known, heap.Pop(&s.leaves).(settled).id)
	}
	if _, again := s.known[id]; again {
		return false
	}
	if id == "" {
		return true
	}
	if s.known == nil {
		s.known = make(map[string]struct{})
	}
	s.known[id] = struct{}{}
	heap.Push(&s.leaves, settled{id, until})
	return true
}

type settled struct {
	id string
	at int64 // when its charge leaves
}

// leaving implements heap.Interface, ordered by when charges leave.
type leaving []settled

func (l leaving) Len() int           { return len(l) }
func (l leaving) Less(i, j int) bool { return l[i].at < l[j].at }
func (l leaving) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *leaving) Push(x any)        { *l = append(*l, x.(settled)) }
func (l *leaving) Pop() any {
	old := *l
	last := old[len(old)-1]
	old[len(old)-1] = settled{}
	*l = old[:len(old)-1]
	return last
}
