package conns

import (
	"math/rand/v2"
	"testing"
)

// Clients that take what they can hold no more together than there is, one alone holds a half, and after a few of them one
// that holds nothing still finds something. When all is given back nothing is left.
func TestAShareIsThereForWhoeverComesNext(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		most := 100 + rng.Int64N(1000)
		s, held, all := NewShare(most), make([]int64, 1+rng.IntN(4)), int64(0)
		for range 5000 {
			i, n := rng.IntN(len(held)), 1+rng.Int64N(3)
			client := string(rune('a' + i))
			if rng.IntN(10) == 0 {
				n = rng.Int64N(held[i] + 1)
				s.Give(client, n)
				n = -n
			} else if !s.Take(client, n) {
				continue
			}
			held[i] += n
			all += n
			if all > most || len(held) == 1 && held[0] > most/2 {
				t.Fatalf("seed %d: of %d, %v are held", seed, most, held)
			}
			if !s.Take("new", 1) {
				t.Fatalf("seed %d: of %d, %v are held, and nothing is left", seed, most, held)
			}
			s.Give("new", 1)
		}
		for i, n := range held {
			s.Give(string(rune('a'+i)), n)
		}
		if s.all != 0 || len(s.held) != 0 {
			t.Fatalf("seed %d: %d are left, of %v", seed, s.all, s.held)
		}
	}
}
