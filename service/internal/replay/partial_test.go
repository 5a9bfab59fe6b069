package replay

import (
	"context"
	"errors"
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

// A replay that is stopped gives the counts of what it has decided, and without Partial only the error.
func TestAStoppedReplayGivesWhatItKnows(t *testing.T) {
	const requests = 5 * steps
	var b Builder
	for i := range requests {
		b.Add(noon.Add(time.Duration(i)*time.Second).UnixMicro(), Selection{Key: "one", Cost: 1})
	}
	trace := b.Trace()
	candidates := []Candidate{{Limits: []sash.Limit{sash.Every(1, 2*time.Second)}}}
	for _, partial := range []bool{true, false} {
		outcomes, err := trace.Run(&endsAfter{Context: t.Context(), looks: 3}, candidates, &RunOptions{Partial: partial})
		if !partial {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			continue
		}
		// Every other request is refused.
		if o := outcomes[0]; err != nil || !o.Partial || o.Requests < steps || o.Requests >= requests || o.Refused != o.Requests/2 || o.RefusedShare != 0.5 {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if outcomes, err := trace.Run(t.Context(), candidates, &RunOptions{Partial: true}); err != nil || outcomes[0].Partial || outcomes[0].Requests != requests {
		t.Errorf("%+v, %v", outcomes[0], err)
	}
}
