package admin

import (
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// usage returns the limits of a subject with what is known of their use: nothing if the store did not answer, and that of
// this instance's share if the instance answered.
func (h *handler) usage(s *decide.State) []wire.Usage {
	if s.Policy != nil && s.Answer.Source == sash.FromPolicy {
		unknown := make([]wire.Usage, len(s.Limits))
		for i, l := range s.Limits {
			unknown[i].Limit = wire.LimitOf(l)
		}
		return unknown
	}
	all := wire.UsageOf(&s.Answer)
	if s.Answer.Source != sash.FromLocal {
		return all
	}
	instances := int64(h.Store().Instances)
	for i := range all {
		u := &all[i]
		share := int64(0)
		if instances > 0 {
			share = u.Units / instances
		}
		used := max(0, share-*u.Remaining)
		if u.Share = &share; !s.Answer.Blocked {
			u.Used = &used
		}
	}
	return all
}

// A last is what the store said last about a subject.
type last struct {
	At     wire.Instant `json:"at"` // the store's clock
	For    wire.Seconds `json:"for"`
	Limits []lastLimit  `json:"limits"`
}

type lastLimit struct {
	Name      string `json:"name"`
	Units     int64  `json:"units"`
	Used      int64  `json:"used"`
	Remaining int64  `json:"remaining"`
}

// last returns what the store said last about a subject, or nil if that is not known.
func (h *handler) last(key string) *last {
	seen := h.Stats.LastSeen(key)
	if seen.At.IsZero() {
		return nil
	}
	l := &last{At: wire.Instant(seen.At), For: wire.Seconds(max(0, time.Since(seen.At)))}
	for _, s := range seen.Limits {
		l.Limits = append(l.Limits, lastLimit{s.Name, s.Units, s.Units - s.Remaining, s.Remaining})
	}
	return l
}
