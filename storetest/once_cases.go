package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// onceCases test calls that are repeated with their ID, on stores that support IDs.
var onceCases = []testCase{
	{
		name:    "a repeated call is charged once",
		promise: "an admitted call that is repeated with its ID gets the same result, and charges nothing",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				first := s.once(l, "id", "k", 4)
				if !first.Allowed || first.Remaining != 6 {
					s.broken("the first call: allowed %v, %d of 10 remain", first.Allowed, first.Remaining)
				}
				s.fill(l, "k", 6)
				s.Advance(time.Millisecond)
				for range 3 {
					if again := s.once(l, "id", "k", 4); !reflect.DeepEqual(again, first) {
						s.broken("the first result was %+v, the repeated one %+v", first, again)
					}
				}
				if again := s.once(l, "id", "k", 9); !again.Allowed || again.Remaining != 6 {
					s.broken("repeated with another cost: %+v", again)
				}
				if left := s.peek(l, "k").Remaining; left != 0 {
					s.broken("%d of 10 remain after 4 and 6", left)
				}
			})
		},
	},
	{
		name:    "a refused call is decided anew",
		promise: "a refusal charges nothing and is not remembered: the same call is admitted once there is room",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				s.fill(l, "k", 10)
				res := s.once(l, "id", "k", 3)
				if res.Allowed || res.RetryAfter <= 0 {
					s.broken("3 of 0: allowed %v, retry after %v", res.Allowed, res.RetryAfter)
				}
				s.Advance(res.RetryAfter)
				if res := s.once(l, "id", "k", 3); !res.Allowed {
					s.broken("refused after RetryAfter")
				}
			})
		},
	},
	{
		name:    "a refusal that is charged is remembered",
		promise: "where refused calls are charged, a repeated one is charged once, too",
		only:    exact,
		run: func(s *suite) {
			opts := s.options()
			opts.CountRefused = true
			l := s.limiterWith(opts, sash.Every(10, window))
			if _, ok := s.Store.(driver.Deduplicator); !ok {
				return
			}
			s.fill(l, "k", 8)
			s.Advance(window / 2)
			first := s.once(l, "id", "k", 3)
			if again := s.once(l, "id", "k", 3); first.Allowed || !reflect.DeepEqual(again, first) {
				s.broken("the first result was %+v, the repeated one %+v", first, again)
			}
			s.Advance(window/2 + resolution)
			if left := s.peek(l, "k").Remaining; left != 7 {
				s.broken("%d of 10 remain in a window with one refused call of 3", left)
			}
		},
	},
	{
		name:    "an ID is remembered for its time",
		promise: "a charge is remembered for RepeatTime, even after its key was forgotten, and not for ever",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				first := s.once(l, "id", "k", 4)
				if store, ok := s.Store.(driver.Resetter); ok {
					if err := l.Reset(s.Context(), "k"); err != nil {
						s.Fatalf("%T: %v", store, err)
					}
				}
				s.Advance(driver.RepeatTime - time.Microsecond)
				if again := s.once(l, "id", "k", 4); !reflect.DeepEqual(again, first) {
					s.broken("just before RepeatTime had passed the result was %+v, the first one %+v", again, first)
				}
				s.Advance(2 * time.Second)
				if again := s.once(l, "id", "k", 4); !again.Allowed || !again.At.Equal(s.Now()) {
					s.broken("after RepeatTime the result was %+v", again)
				}
				if left := s.peek(l, "k").Remaining; left != 6 {
					s.broken("%d of 10 remain after a new call of 4", left)
				}
			})
		},
	},
	{
		name:    "an ID is its key's",
		promise: "the same ID names another call on another key, and IDs and keys may contain any bytes",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				long := strings.Repeat("x", sash.MaxIDLength-1)
				calls := [][2]string{
					{"id", "a"}, {"id", "b"}, {"id", "a:b"}, {"b:id", "a"}, {"ID", "a"}, {"{id}", "{t}:a"}, {"id", "{t}:a"}, {"id", "{t}:b"},
					{"\x00\r\n\xff", "a"}, {"\x00\r\n\xfe", "a"}, {long + "1", "b"}, {long + "2", "b"}, {"}id", "{"}, {"id", "{}"},
				}
				want := make(map[string]int64)
				for range 2 {
					for _, c := range calls {
						s.once(l, c[0], c[1], 1)
					}
				}
				for _, c := range calls {
					want[c[1]]++
				}
				for key, used := range want {
					if left := s.peek(l, key).Remaining; left != 10-used {
						s.broken("the key %q: %d of 10 remain after %d calls", key, left, used)
					}
				}
			})
		},
	},
	{
		name:    "concurrent repetitions",
		promise: "of any number of concurrent calls with one ID exactly one is charged, and all are admitted",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				var group sync.WaitGroup
				for i := range 24 {
					group.Go(func() {
						id := fmt.Sprint(i % 3)
						if res, err := l.AllowOnce(s.Context(), id, "k", 3); err != nil || !res.Allowed {
							s.Errorf("the call %s: allowed %v, %v", id, res.Allowed, err)
						}
					})
				}
				group.Wait()
				if left := s.peek(l, "k").Remaining; left != 1 {
					s.broken("%d of 10 remain after 3 calls of 3, each repeated 8 times", left)
				}
			})
		},
	},
}

// deduplicating runs f with a limiter of 10 on a store that supports IDs, at the start of a window.
func (s *suite) deduplicating(f func(*sash.Limiter)) {
	s.Helper()
	if _, ok := s.Store.(driver.Deduplicator); !ok {
		return
	}
	s.align(8 * window)
	f(s.limiter(sash.Every(10, window)))
}

func (s *suite) once(l *sash.Limiter, id, key string, cost int64) sash.Result {
	s.Helper()
	res, err := l.AllowOnce(s.Context(), id, key, cost)
	if err != nil {
		s.Fatalf("AllowOnce(%q, %q, %d): %v", id, key, cost, err)
	}
	return res
}
