package logs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"example.com/sash/service/internal/replay"
)

// A holdOut is the JSON of a proposal from the first part of the log, judged on the rest.
type holdOut struct {
	Percent int           `json:"percent"`
	Until   string        `json:"until"`
	Limits  []string      `json:"limits"`
	First   replay.Judged `json:"first"`
	Rest    replay.Judged `json:"rest"`
}

// confide adds what the proposal is worth: warnings and the hold-out.
func (s *suggestFlags) confide(ctx context.Context, trace *replay.Trace, pair *windowPair, r *suggestReport) error {
	if err := s.warnOfRequests(ctx, trace, pair, r); err != nil {
		return err
	}
	held, err := trace.HoldOut(ctx, s.caps, pair.burst, pair.sustained)
	switch {
	case errors.Is(err, replay.ErrTooShort):
		r.NoHoldOut = strings.TrimPrefix(err.Error(), replay.ErrTooShort.Error()+": ")
	case err != nil:
		return err
	default:
		r.HoldOut = &holdOut{Percent: held.Percent, Until: held.Until.Format(timeForm), Limits: limitTexts(held.Limits), First: held.First, Rest: held.Rest}
	}
	return nil
}

// warnOfRequests warns if a few clients lose much of the traffic, and says what would spare them.
func (s *suggestFlags) warnOfRequests(ctx context.Context, trace *replay.Trace, pair *windowPair, r *suggestReport) error {
	o := r.Outcomes[0]
	if s.caps.Requests > 0 || o.RefusedShare <= warnRequests {
		return nil
	}
	capped := s.caps
	capped.Requests = warnRequests
	other, err := trace.Suggest(ctx, capped, pair.burst, pair.sustained)
	if err != nil {
		return err
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("%.2f%% of the requests would have been refused, all of %s, which may be the best customers. --affect-requests %g%% gives %s.",
		100*o.RefusedShare, r.clients(o.ClientsLimited), 100*warnRequests, strings.Join(limitTexts(other.Limits), ",")))
	return nil
}

func confidenceText(t *text, r *suggestReport, caps replay.Caps) {
	switch h := r.HoldOut; h {
	case nil:
		t.say("\nNot tested on a held-out part of the log: %s.", r.NoHoldOut)
	default:
		t.say("\nTested on what it has not seen: the first %d%% of the time, until %s, gives %s. That refuses", h.Percent, h.Until, strings.Join(h.Limits, ","))
		table := t.table(0)
		for _, part := range []struct {
			name string
			j    replay.Judged
		}{{fmt.Sprintf("on the %d%%", h.Percent), h.First}, {"on the rest", h.Rest}} {
			fmt.Fprintf(table, "  %s\t%.2f%% of the %ss\t(%d of %d)\t%.2f%% of the requests\t(%d of %d)\n",
				part.name, 100*part.j.LimitedShare, r.noun(), part.j.Limited, part.j.Clients, 100*part.j.RefusedShare, part.j.Refused, part.j.Requests)
		}
		_ = table.Flush() // the text keeps the error
		if h.Rest.LimitedShare > caps.Clients || caps.Requests > 0 && h.Rest.RefusedShare > caps.Requests {
			t.say("On the rest that is more than was asked for, so expect more in the days to come.")
		}
	}
}
