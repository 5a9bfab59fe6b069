package judge_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/memstore"
)

func TestMemstore(t *testing.T) {
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			for seed := range uint64(40) {
				clock := judge.NewClock(time.Date(2026, 3, 28, 22, 59, 58, 999_999_000, time.UTC))
				rng := rand.New(rand.NewPCG(seed, 1))
				err := judge.Walk(judge.Setup{
					Store: memstore.New(&memstore.Options{Now: clock.Now}), Now: clock.Now, Advance: clock.Advance,
					Algorithm: a, Steps: 60, Choose: rng.IntN, Prefix: fmt.Sprint(seed, ":"),
				})
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}
