package modeltest

import (
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/redistest"
)

// A server whose clock is within a window of 1970, as that of a board without a battery is, decides like any other.
func TestAClockNear1970(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			store, clock, _ := virtual(t, server.Addr(), nil)
			clock.Advance(time.Unix(10, 0).Sub(clock.Now()))
			policy, err := sash.NewPolicy(options(a), sash.Every(3, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 8 {
				res, err := store.Decide(t.Context(), driver.Request{Key: "1970", Cost: 1, Policy: policy})
				if err != nil {
					t.Fatal(err)
				}
				if want := i%4 < 3; res.Allowed() != want {
					t.Errorf("call %d: allowed is %v, want %v", i, res.Allowed(), want)
				}
				clock.Advance(time.Second)
				if i == 3 {
					clock.Advance(2 * time.Hour)
				}
			}
		})
	}
}
