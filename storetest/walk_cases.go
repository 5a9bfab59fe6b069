package storetest

import (
	"fmt"
	"math/rand/v2"

	"example.com/sash/storetest/oracle"
)

// walkCases compare random calls with the definition.
var walkCases = []testCase{
	{
		name:    "random calls",
		promise: "every field of every result agrees with the definition (see package oracle)",
		run: func(s *suite) {
			for seed := range uint64(20) {
				err := oracle.Walk(oracle.Setup{
					Store: s.Store, Now: s.Now, Advance: s.Advance, Algorithm: s.algorithm, Steps: 50,
					Prefix: fmt.Sprintf("walk%d:", seed), Choose: rand.New(rand.NewPCG(seed, 0)).IntN,
				})
				if err != nil {
					s.broken("walk %d: %v", seed, err)
				}
			}
		},
	},
}
