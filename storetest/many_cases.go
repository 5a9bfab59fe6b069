package storetest

import (
	"fmt"
	"math/rand/v2"

	"example.com/sash/storetest/oracle"
)

// manyCases test decisions on several subjects in one round trip, on stores that make them.
var manyCases = []testCase{
	{
		name:    "many: random calls",
		promise: "calls on several subjects in one round trip are each decided by themselves, and every answer agrees with the definition",
		run: func(s *suite) {
			for seed := range uint64(20) {
				err := oracle.WalkMany(oracle.Setup{
					Store: s.Store, Now: s.Now, Advance: s.Advance, Algorithm: s.algorithm, Steps: 100,
					Prefix: fmt.Sprintf("many%d:", seed), Choose: rand.New(rand.NewPCG(seed, 0)).IntN,
				})
				if err != nil {
					s.broken("walk %d: %v", seed, err)
				}
			}
		},
	},
}
