package denials_test

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// Recall is what Decide answers without the store.
func TestRecallAnswersWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Store: memstore.New(nil)}
		s := newStore(t, inner, nil)
		l := newLimiter(t, s, sash.Every(1, 500*time.Millisecond))
		req := driver.Request{Key: "k", Cost: 1, Policy: l.Policy()}
		if _, ok := s.Recall(req); ok {
			t.Error("recalled before the first call")
		}
		ask(t, l, "k", 1)
		ask(t, l, "k", 1) // is refused
		time.Sleep(100 * time.Millisecond)
		answer, ok := s.Recall(req)
		if !ok || answer.Allowed() || answer.Source != driver.FromCache || answer.Retry() != 400_000 || s.Answered() != 1 {
			t.Errorf("%+v, %v, %d answered", answer, ok, s.Answered())
		}
		time.Sleep(400 * time.Millisecond)
		if answer, ok := s.Recall(req); ok || inner.calls.Load() != 2 {
			t.Errorf("when there is room: %+v", answer)
		}
	})
}
