package storetest

import (
	"fmt"
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
		promise: "an admitted call that is repeated with its ID is admitted as of the same instant, and charges nothing",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				first := s.once(l, "id", "k", 4)
				if !first.Allowed || first.Remaining != 6 {
					s.broken("the first call: allowed %v, %d of 10 remain", first.Allowed, first.Remaining)
				}
				s.fill(l, "k", 6)
				s.Advance(time.Millisecond)
				now := s.peek(l, "k")
				for _, cost := range []int64{4, 4, 1, 9} {
					again := s.once(l, "id", "k", cost)
					if !again.Allowed || !again.At.Equal(first.At) || again.Remaining != 0 || again.ResetAfter != now.ResetAfter {
						s.broken("the first result was %+v, a peek gets %+v, and repeated with cost %d it is %+v", first, now, cost, again)
					}
				}
				s.remain(l, "k", 0, "after 4 and 6")
			})
		},
	},
	{
		name:    "a call is repeated under other limits",
		promise: "a repeated call is admitted under any limits, charges nothing to them, and gets what they hold now",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				first := s.once(l, "id", "k", 4)
				more := s.limiter(sash.Every(20, window), sash.Every(30, 2*window))
				for _, l := range []*sash.Limiter{more, s.limiter(sash.Every(5, window)), l} {
					again, peek := s.once(l, "id", "k", 4), s.peek(l, "k")
					if !again.Allowed || !again.At.Equal(first.At) || again.Remaining != peek.Remaining {
						s.broken("repeated under %v: %+v, and a peek gets %+v", l.Limits(), again, peek)
					}
				}
			})
		},
	},
	{
		name:    "a look with an ID is not remembered",
		promise: "a call of no cost charges nothing and is not remembered, so a later call with its ID is charged",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				store := s.Store.(driver.Deduplicator)
				for _, key := range []string{"new", "k"} {
					if key == "k" {
						s.fill(l, key, 2)
					}
					if res, err := store.DecideOnce(s.Context(), "id", driver.Request{Key: key, Policy: l.Policy()}); err != nil || !res.Allowed() {
						s.broken("a look with an ID got %+v, %v", res, err)
					}
					before := s.peek(l, key).Remaining
					if s.once(l, "id", key, 3); s.peek(l, key).Remaining != before-3 {
						s.broken("of %d remaining, a call of 3 with the ID of a look left %d", before, s.peek(l, key).Remaining)
					}
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
			power[driver.Deduplicator](s)
			opts := s.options()
			opts.CountRefused = true
			l := s.limiterWith(opts, sash.Every(10, window))
			s.fill(l, "k", 8)
			s.Advance(window / 2)
			first := s.once(l, "id", "k", 3)
			again := s.once(l, "id", "k", 3)
			if first.Allowed || again.Allowed || !again.At.Equal(first.At) || again.RetryAfter <= 0 {
				s.broken("the first result was %+v, the repeated one %+v", first, again)
			}
			s.Advance(window/2 + resolution)
			s.remain(l, "k", 7, "in a window with one refused call of 3")
			two := s.limiterWith(opts, sash.Every(100, window), sash.Every(10, 2*window))
			s.fill(two, "other", 5)
			if res := s.once(two, "id", "other", 6); res.Allowed {
				s.broken("6 of 5: %+v", res)
			}
			if res := s.once(s.limiterWith(opts, sash.Every(100, window)), "id", "other", 6); res.Allowed {
				s.broken("a refused call that is repeated without the limit that refused it: %+v", res)
			}
		},
	},
	{
		name:    "an ID is remembered for its time",
		promise: "a charge is remembered for RepeatTime, even after it has left its window, and not for ever",
		run: func(s *suite) {
			s.deduplicating(func(l *sash.Limiter) {
				first := s.once(l, "id", "k", 4)
				s.Advance(driver.RepeatTime - time.Microsecond)
				if again := s.once(l, "id", "k", 4); !again.Allowed || !again.At.Equal(first.At) {
					s.broken("just before RepeatTime had passed the result was %+v, the first one %+v", again, first)
				}
				s.Advance(2 * time.Second)
				if again := s.once(l, "id", "k", 4); !again.Allowed || !again.At.Equal(s.Now()) {
					s.broken("after RepeatTime the result was %+v", again)
				}
				s.remain(l, "k", 6, "after a new call of 4")
			})
		},
	},
	{
		name:    "calls come after one with an ID",
		promise: "a call is remembered for RepeatTime, whatever other calls bring and however a log grows",
		run: func(s *suite) {
			s.deduplicating(func(*sash.Limiter) {
				short, long := s.limiter(sash.Every(200, time.Second)), s.limiter(sash.Every(400, 2*time.Second), sash.Every(500, 3*time.Second))
				first := s.once(short, "id", "k", 1)
				for i := range 150 {
					s.Advance(time.Second / 128)
					s.fill([]*sash.Limiter{short, short, long}[i/50], "k", 1)
				}
				s.Advance(driver.RepeatTime - 5*time.Second)
				s.fill(short, "k", 1)
				s.Advance(time.Second)
				if again := s.once(long, "id", "k", 1); !again.At.Equal(first.At) {
					s.broken("the first result was %+v, the repeated one %+v", first, again)
				}
			})
		},
	},
	{
		name:    "other limits come after a call with an ID",
		promise: "a call is remembered for RepeatTime, whatever limits the next calls bring",
		run: func(s *suite) {
			s.deduplicating(func(*sash.Limiter) {
				for i, next := range []*sash.Limiter{s.limiter(sash.Every(300, time.Second)), s.limiter(sash.Every(200, 2*time.Second))} {
					key := fmt.Sprint("k", i)
					first := s.once(s.limiter(sash.Every(200, time.Second)), "id", key, 1)
					s.fill(next, key, 1)
					s.Advance(5 * time.Second)
					if again := s.once(next, "id", key, 1); !again.At.Equal(first.At) {
						s.broken("the first result was %+v, the one repeated under %v %+v", first, next.Limits(), again)
					}
				}
			})
		},
	},
	{
		name:    "a reset forgets IDs",
		promise: "after a reset a repeated call is a new one",
		run: func(s *suite) {
			power[driver.Resetter](s)
			s.deduplicating(func(l *sash.Limiter) {
				s.once(l, "id", "k", 4)
				s.reset(l, "k")
				s.Advance(time.Second)
				if again := s.once(l, "id", "k", 3); !again.At.Equal(s.Now()) || again.Remaining != 7 {
					s.broken("after a reset the result was %+v", again)
				}
			})
		},
	},
	{
		name:    "many IDs",
		promise: "a subject remembers hundreds of calls and of settlements, and applies each once",
		run: func(s *suite) {
			s.deduplicating(func(*sash.Limiter) {
				store, settles := s.Store.(driver.Settler)
				l := s.limiter(sash.Every(1000, 100*window))
				policy := s.policy(l.Limits()...)
				req := driver.Request{Key: "k", Cost: 3, Policy: policy, MaySettle: true}
				const many = 100
				at := make(map[string]time.Time)
				var sets []driver.Settlement
				for i := range many {
					at[fmt.Sprint(i)] = s.once(l, fmt.Sprint(i), "k", 1).At
					s.Advance(time.Millisecond)
					if !settles {
						continue
					}
					res := s.decide(req)
					set := driver.Settlement{Request: req, At: res.At, Source: res.Source, Units: int64(1 + i%2*4), ID: fmt.Sprint(i)}
					sets = append(sets, set)
					s.settle(store, set)
				}
				left := s.peek(l, "k").Remaining
				for id, at := range at {
					if res := s.once(l, id, "k", 1); !res.At.Equal(at) {
						s.broken("the call %q of %v got %+v when it was repeated", id, at, res)
					}
				}
				for _, set := range sets {
					s.settle(store, set)
				}
				want := int64(1000 - many)
				if settles {
					want -= many / 2 * (1 + 5)
				}
				if again := s.peek(l, "k").Remaining; left != want || again != want {
					s.broken("%d remain, and %d after all was repeated, want %d", left, again, want)
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
					s.remain(l, key, 10-used, "after %d calls", used)
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
				s.remain(l, "k", 1, "after 3 calls of 3, each repeated 8 times")
			})
		},
	},
}

// deduplicating runs f with a limiter of 10 on a store that supports IDs, at the start of a window.
func (s *suite) deduplicating(f func(*sash.Limiter)) {
	s.Helper()
	power[driver.Deduplicator](s)
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
