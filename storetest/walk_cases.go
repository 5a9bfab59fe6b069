package storetest

import (
	"fmt"
	"math/rand/v2"

	"example.com/sash/internal/judge"
)

// walkCases compare random calls with the definition.
var walkCases = []testCase{
	{"random calls", "every field of every result agrees with the definition (see package internal/judge)", nil, walk(judge.Calls, 50)},
	{"many: random calls",
		"calls on several subjects in one round trip are each decided by themselves, and every answer agrees with the definition",
		nil, walk(judge.Many, 100)},
	{"any: random choices",
		"of random subjects the one with most room is charged, and every field of the answer agrees with the definition",
		nil, walk(judge.Any, 100)},
}

// walk takes walks of so many steps.
func walk(usual judge.Usual, steps int) func(*suite) {
	return func(s *suite) {
		for seed := range uint64(20) {
			err := judge.Walk(judge.Setup{
				Store: s.Store, Now: s.Now, Advance: s.Advance, Algorithm: s.algorithm, Usual: usual, Steps: steps,
				Prefix: fmt.Sprintf("walk%d:", seed), Choose: rand.New(rand.NewPCG(seed, 0)).IntN,
			})
			if err != nil {
				s.broken("walk %d: %v", seed, err)
			}
		}
	}
}
