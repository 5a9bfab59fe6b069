package replay

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/sash"
)

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
		ctx, stop := context.WithCancel(t.Context())
		outcomes, err := trace.Run(ctx, candidates, &RunOptions{Partial: partial, Progress: func(done int64) {
			if done >= 2*steps {
				stop()
			}
		}})
		stop()
		if !partial {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			continue
		}
		// Every other request is refused.
		if o := outcomes[0]; err != nil || !o.Partial || o.Requests < 2*steps || o.Requests >= requests || o.Refused != o.Requests/2 || o.RefusedShare != 0.5 {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if outcomes, err := trace.Run(t.Context(), candidates, &RunOptions{Partial: true}); err != nil || outcomes[0].Partial || outcomes[0].Requests != requests {
		t.Errorf("%+v, %v", outcomes[0], err)
	}
}
