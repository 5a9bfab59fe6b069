//go:build !sashserver

package cli

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.com/sash/service/internal/verify"
)

// By brute force: the units in the trailing window at each tenth of a column.
func TestAPictureHasTheUnitsOfEachColumn(t *testing.T) {
	const column, tenth = 10 * time.Microsecond, time.Microsecond
	const window = pictureColumns / 3 * column
	from := time.Unix(1_800_000_000, 0)
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 11))
		var calls []verify.Moment
		for range 1 + random.IntN(300) {
			calls = append(calls, verify.Moment{
				At: from.Add(-window + time.Duration(random.Int64N(int64(4*window)/int64(tenth)))*tenth), Units: 1 + random.Int64N(4), Admitted: random.IntN(3) > 0,
			})
		}
		slices.SortFunc(calls, func(a, b verify.Moment) int { return a.At.Compare(b.At) })
		used, admitted, refused := inColumns(calls, from, window)
		for i := range pictureColumns {
			var most int64
			var in, out bool
			for step := range int(column / tenth) {
				at := from.Add(time.Duration(i)*column + time.Duration(step)*tenth)
				var units int64
				for _, c := range calls {
					if c.Admitted && c.At.After(at.Add(-window)) && !c.At.After(at) {
						units += c.Units
					}
					in = in || c.Admitted && c.At.Equal(at)
					out = out || !c.Admitted && c.At.Equal(at)
				}
				most = max(most, units)
			}
			// Units that leave as a column begins may still be drawn in it.
			before := from.Add(time.Duration(i)*column - time.Nanosecond)
			var still int64
			for _, c := range calls {
				if c.Admitted && c.At.After(before.Add(-window)) && !c.At.After(before) {
					still += c.Units
				}
			}
			if used[i] != most && used[i] != max(most, still) || admitted[i] != in || refused[i] != out {
				t.Fatalf("seed %d: column %d has %d units, %v, %v; want %d, %v, %v", seed, i, used[i], admitted[i], refused[i], most, in, out)
			}
		}
	}
}
