package wire

import (
	"strings"

	"example.com/sash"
)

// A Limit is one limit, with what is used of it where that is known.
type Limit struct {
	// Name is the limit's name, which is its text, such as "10/1m", unless it was given another.
	Name string `json:"name"`
	// Units is the most that the window may hold.
	Units int64 `json:"units"`
	// Window is the length of a sliding window; 0 for a calendar limit, whose Period says which.
	Window Seconds `json:"window"`
	// Period is such as "day@Europe/Paris", and absent for a sliding window.
	Period string `json:"period,omitempty"`
	// Remaining is the units of this limit that are left; absent where the limit is only named.
	Remaining *int64 `json:"remaining,omitempty"`
}

// LimitOf returns a limit by itself.
func LimitOf(l sash.Limit) Limit {
	out := Limit{Name: l.Name, Units: l.Units, Window: Seconds(l.Window)}
	if out.Name == "" {
		out.Name = l.String()
	}
	if l.Period != 0 {
		_, out.Period, _ = strings.Cut(l.String(), "/")
	}
	return out
}
