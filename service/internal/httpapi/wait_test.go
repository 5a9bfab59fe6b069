package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/memstore"
)

const fixed = `{"domain":"d","entries":[{"key":"fixed"}],"wait_up_to":5}`

// waiting returns a body like ann's that can wait for a number of seconds, or, after a comma, with other fields.
func waiting(seconds string) string {
	return strings.TrimSuffix(ann, "}") + `,"wait_up_to":` + seconds + `}`
}

func waitingHandler(t *testing.T) (*Handler, *clock) {
	t.Helper()
	c := &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	return newHandler(t, memstore.New(&memstore.Options{Now: c.read}), &Options{MaxWait: time.Minute, Now: c.read}), c
}

// TestRequestsWaitInOrder states that requests that can wait are let through at once, each with the time of its turn:
// at most three in any ten seconds, four in any minute, and nobody before those who came first.
func TestRequestsWaitInOrder(t *testing.T) {
	h, c := waitingHandler(t)
	for i, want := range []float64{0, 0, 0, 10, 60, 60} {
		if i == 5 {
			c.now = c.now.Add(time.Second)
			want = 59
		}
		said := post(t, h, "/v1/allow", waiting("60"), 200)
		if said["start_after"] != want || said["retry_after"] != 0.0 {
			t.Errorf("request %d starts after %v, want %v: %v", i, said["start_after"], want, said)
		}
	}
	if said := post(t, h, "/v1/allow", waiting("58.999"), 429); said["start_after"] != nil || said["retry_after"] != 59.0 {
		t.Errorf("a request that cannot wait that long: %v", said)
	}
	if said := post(t, h, "/v1/allow", ann, 429); said["start_after"] != nil {
		t.Errorf("a request that cannot wait: %v", said)
	}
	w := send(h, http.MethodPost, "/v1/allow", waiting("58"))
	expect(t, w, 429, "59", w.Body.String()[:w.Body.Len()-1])
}

// TestAWaitingReservationIsGivenBack states that the token of a booking gives its place back, to others that fit there.
func TestAWaitingReservationIsGivenBack(t *testing.T) {
	h, _ := waitingHandler(t)
	for range 3 {
		post(t, h, "/v1/allow", waiting("60"), 200)
	}
	said := post(t, h, "/v1/reserve", waiting("60"), 200)
	if said["start_after"] != 10.0 {
		t.Fatalf("the reservation starts after %v", said["start_after"])
	}
	post(t, h, "/v1/cancel", fmt.Sprintf(`{"token":%q}`, said["token"]), 200)
	if said := post(t, h, "/v1/reserve", waiting("60"), 200); said["start_after"] != 10.0 {
		t.Errorf("after it was given back the next starts after %v, want its place", said["start_after"])
	}
}

// TestARepeatedWaitKeepsItsTurn states that a request with an ID is booked once, however often it is repeated.
func TestARepeatedWaitKeepsItsTurn(t *testing.T) {
	h, c := waitingHandler(t)
	for range 3 {
		post(t, h, "/v1/allow", waiting("60"), 200)
	}
	for _, path := range []string{"/v1/allow", "/v1/reserve"} {
		c.now = c.now.Add(time.Second)
		first := post(t, h, path, waiting(`60,"id":"job"`), 200)["start_after"].(float64)
		c.now = c.now.Add(time.Second)
		for _, wait := range []string{"60", "1", "0"} {
			if again := post(t, h, path, waiting(wait+`,"id":"job"`), 200)["start_after"]; again != first-1 {
				t.Errorf("%s: repeated a second later, with a wait of %s s, it starts after %v, at first %v", path, wait, again, first)
			}
		}
	}
}

// TestWrongWaits states that a wait that the service cannot keep is an error at once, and that what does not bind does
// not wait.
func TestWrongWaits(t *testing.T) {
	h, _ := waitingHandler(t)
	for _, wrong := range []string{"-1", "-1e-9", "61", `"5"`, "1e9", "1e400", "9e999", "true", "{}"} {
		post(t, h, "/v1/allow", waiting(wrong), 400)
		post(t, h, "/v1/reserve", waiting(wrong), 400)
	}
	for _, right := range []string{"6e1", "1.5E+1", "null"} {
		post(t, h, "/v1/allow", waiting(right), 200)
	}
	post(t, h, "/v1/allow", waiting("5e-05"), 429)
	for _, path := range []string{"/v1/peek", "/v1/explain"} { // charge nothing, so nobody waits
		post(t, h, path, waiting("61"), 200)
		post(t, h, path, fixed, 200)
	}
	if said := fmt.Sprint(post(t, h, "/v1/allow", fixed, 422)["error"]); !strings.Contains(said, "has no queue") || !strings.Contains(said, "fixed-window") {
		t.Errorf("a rule without a queue: %s", said)
	}
	none := newHandler(t, memstore.New(nil), nil)
	if said := fmt.Sprint(post(t, none, "/v1/allow", waiting("1"), 400)["error"]); !strings.Contains(said, "--max-wait") {
		t.Errorf("a service where nobody waits: %s", said)
	}
	post(t, none, "/v1/allow", waiting("0"), 200)
	watched := `{"domain":"d","entries":[{"key":"watched"}],"wait_up_to":60}`
	for range 2 {
		if said := post(t, h, "/v1/allow", watched, 200); said["start_after"] != 0.0 {
			t.Errorf("a rule that does not bind: %v", said)
		}
	}
	if said := post(t, h, "/v1/allow", `{"domain":"d","entries":[{"key":"nobody"}],"wait_up_to":60}`, 200); said["start_after"] != 0.0 {
		t.Errorf("no rule: %v", said)
	}
}
