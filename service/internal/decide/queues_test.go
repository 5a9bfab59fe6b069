package decide

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Concurrent bookings count like waiting ones until they have an answer. Bookings that have started are forgotten.
func TestWhatAClientHoldsOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q queues
		take := func(p place, want time.Duration) {
			t.Helper()
			if got := q.take(p, 2*time.Second, 10*time.Second); got != want {
				t.Errorf("a booking may be %v ahead, want %v", got, want)
			}
		}
		p := place{"client", "subject"}
		take(p, 10*time.Second)
		take(p, 8*time.Second)
		take(place{"other", "subject"}, 10*time.Second)
		q.taken(p, "", 2*time.Second, 10*time.Second, 0) // refused
		q.taken(p, "", 2*time.Second, 10*time.Second, 5*time.Second)
		take(p, 8*time.Second)
		q.taken(p, "", 2*time.Second, 10*time.Second, 0)
		time.Sleep(6 * time.Second)
		take(p, 10*time.Second)
		for i := range 2 * mostPlaces {
			p := place{fmt.Sprint(i), "subject"}
			q.take(p, time.Second, 10*time.Second)
			q.taken(p, "", time.Second, 10*time.Second, time.Second)
			time.Sleep(time.Millisecond)
		}
		if len(q.held) > 10_000 {
			t.Errorf("%d places are held, of which some 1,300 have bookings", len(q.held))
		}
	})
}
