package replay

import (
	"context"
	"testing"
	"time"

	"example.com/sash"
)

// An endsAfter context ends after it has been looked at so often.
type endsAfter struct {
	context.Context
	looks int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// A replay that is stopped gives the counts of what it has decided.
func TestAStoppedReplayGivesWhatItKnows(t *testing.T) {
	const requests = 5 * steps
	var b Builder
	for i := range requests {
		b.Add(noon.Add(time.Duration(i)*time.Second).UnixMicro(), Selection{Key: "one", Cost: 1})
	}
	trace := b.Trace()
	candidates := []Candidate{{Limits: []sash.Limit{sash.Every(1, 2*time.Second)}}}
	for looks, all := range map[int]bool{3: false, 100: true} {
		// Every other request is refused.
		outcomes, err := trace.Run(&endsAfter{Context: t.Context(), looks: looks}, candidates, 5, nil)
		if o := outcomes[0]; err != nil || o.Partial == all || o.Requests < steps || (o.Requests == requests) != all || o.Refused != o.Requests/2 || o.RefusedShare != 0.5 {
			t.Errorf("%+v, %v", o, err)
		}
	}
}
