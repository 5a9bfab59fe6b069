package storetest

import (
	"fmt"
	"math/rand/v2"

	"example.com/sash/internal/judge"
)

// walkCases compare random calls with the definition.
var walkCases = []testCase{
	{
		name:    "random calls",
		promise: "every field of every result agrees with the definition (see package internal/judge)",
		run: func(s *suite) {
			s.walk(judge.Walk, 50)
		},
	},
	{
		name:    "many: random calls",
		promise: "calls on several subjects in one round trip are each decided by themselves, and every answer agrees with the definition",
		run: func(s *suite) {
			s.walk(judge.WalkMany, 100)
		},
	},
	{
		name:    "any: random choices",
		promise: "of random subjects the one with most room is charged, and every field of the answer agrees with the definition",
		run: func(s *suite) {
			s.walk(judge.WalkAny, 100)
		},
	},
}

// walk takes walks of so many steps.
func (s *suite) walk(by func(judge.Setup) error, steps int) {
	s.Helper()
	for seed := range uint64(20) {
		err := by(judge.Setup{
			Store: s.Store, Now: s.Now, Advance: s.Advance, Algorithm: s.algorithm, Steps: steps,
			Prefix: fmt.Sprintf("walk%d:", seed), Choose: rand.New(rand.NewPCG(seed, 0)).IntN,
		})
		if err != nil {
			s.broken("walk %d: %v", seed, err)
		}
	}
}
