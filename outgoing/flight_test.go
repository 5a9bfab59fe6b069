package outgoing

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

type basis func(*http.Request) (*http.Response, error)

func (b basis) RoundTrip(req *http.Request) (*http.Response, error) { return b(req) }

// A flight ends when the transport behind panics, too.
func TestAPanicEndsTheFlight(t *testing.T) {
	base := basis(func(*http.Request) (*http.Response, error) { panic("a fault of the transport behind") })
	rt, err := New(memstore.New(nil), Everything("api"), &Options{Base: base}, sash.PerHour(10))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is not the caller's")
			}
		}()
		_, _ = rt.RoundTrip(req) //nolint:bodyclose // it panics
	}()
	if n := len(rt.learned.flying); n != 0 {
		t.Errorf("%d buckets have calls in flight", n)
	}
}

// A level that has risen to its limit lets requests book as far ahead as before.
func TestALevelThatIsGoneHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		learned, limit := newLevels(), sash.PerMinute(100)
		subject := sash.Subject{Key: "api", Cost: 1, Limits: []sash.Limit{limit}}
		whole, _, ahead := learned.apply(subject, 100, time.Now())
		learned.lower(idOf("api", limit), limit, 40, time.Now())
		if lower, _, rises := learned.apply(subject, 100, time.Now()); lower[0].Units != 40 || rises != time.Minute {
			t.Errorf("the limit is %v, and rises for %v", lower[0], rises)
		}
		time.Sleep(time.Minute)
		if gone, _, rises := learned.apply(subject, 100, time.Now()); gone[0] != whole[0] || rises != ahead {
			t.Errorf("a minute later the limit is %v, and bookings go %v ahead, want %v and %v", gone[0], rises, whole[0], ahead)
		}
	})
}
