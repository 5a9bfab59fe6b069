package failover

import "sync"

// Workers are the goroutines in which calls run. One that has ended a call takes the next, as long as others are under
// way: a new goroutine for each call would have to make its stack larger every time. All of them end with the last call,
// so that a store that nobody calls has none. The zero value is ready.
type workers struct {
	mu   sync.Mutex
	busy int        // guarded by mu: those that have a job
	idle []chan job // guarded by mu: how to give one to the others
}

// A job is a call of the store.
type job interface{ run() }

// do runs a job in a goroutine.
func (w *workers) do(j job) {
	w.mu.Lock()
	w.busy++
	last := len(w.idle) - 1
	if last < 0 {
		w.mu.Unlock()
		go w.work(j)
		return
	}
	next := w.idle[last] // its stack is still in the processor's cache
	w.idle = w.idle[:last]
	w.mu.Unlock()
	next <- j
}

// work runs jobs until no other is under way.
func (w *workers) work(j job) {
	for next := make(chan job, 1); j != nil; j = <-next {
		j.run()
		if !w.rest(next) {
			return
		}
	}
}

// rest makes a worker wait for a job, and reports whether it does. With the last one all end.
func (w *workers) rest(next chan job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy--; w.busy > 0 {
		w.idle = append(w.idle, next)
		return true
	}
	for _, one := range w.idle {
		one <- nil // there is room for one
	}
	w.idle = nil
	return false
}
