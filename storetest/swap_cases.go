package storetest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"example.com/sash"
	"example.com/sash/driver"
)

// swapCases are for stores that keep texts.
var swapCases = []testCase{
	{
		name:    "texts: one is replaced only by callers that know it",
		promise: "a text is replaced if it is still the old one, and every caller gets the text of the key",
		only:    oneAlgorithm,
		run: func(s *suite) {
			store, long := power[driver.Swapper](s), strings.Repeat("\x00é", driver.MaxText/3)
			for _, step := range []struct{ key, old, new, is string }{
				{"k", "", "", ""},
				{"k", "a", "b", ""},
				{"k", "", "a", "a"},
				{"k", "", "b", "a"},
				{"k", "a", "b", "b"},
				{"k", "a", "b", "b"}, // again
				{"k", "", "", "b"},
				{"other", "", "", ""},
				{"k", "b", long, long},
			} {
				got, err := store.Swap(s.Context(), step.key, driver.Swap{Old: step.old, New: step.new, Lasts: 60_000_000})
				if err != nil {
					s.Fatal(err)
				}
				if got.Text != step.is || got.Process == "" {
					s.broken("%.20q for %.20q leaves %.20q, want %.20q", step.new, step.old, got.Text, step.is)
				}
			}
			if res := s.allow(s.limiter(sash.PerMinute(1)), "k", 1); !res.Allowed {
				s.broken("a text counts as a charge: %+v", res)
			}
		},
	},
	{
		name:    "texts: of callers at once, each sees the others",
		promise: "comparing and replacing are one step",
		only:    oneAlgorithm,
		run: func(s *suite) {
			store := power[driver.Swapper](s)
			count := func(text string) int {
				n, _, _ := strings.Cut(text, " ")
				done, _ := strconv.Atoi(n)
				return done
			}
			const callers, swaps = 8, 10
			var group sync.WaitGroup
			for i := range callers {
				group.Go(func() {
					for done, text := 0, ""; done < swaps; {
						mine := fmt.Sprint(count(text)+1, " by ", i)
						got, err := store.Swap(s.Context(), "k", driver.Swap{Old: text, New: mine, Lasts: 60_000_000})
						if err != nil {
							s.Error(err)
							return
						}
						if text = got.Text; text == mine {
							done++
						}
					}
				})
			}
			group.Wait()
			if got, err := store.Swap(s.Context(), "k", driver.Swap{}); err != nil || count(got.Text) != callers*swaps {
				s.broken("%d swaps leave %q, %v", callers*swaps, got.Text, err)
			}
		},
	},
}
