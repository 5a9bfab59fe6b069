package denials_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/stack/internal/denials"
)

// A starting store starts the calls that it counts.
type starting struct{ counted }

func (s *starting) Start(ctx context.Context, req driver.Request, done func(driver.Answer, error)) driver.Started {
	go func() { done(s.Decide(ctx, req)) }()
	return s
}

func (s *starting) Leave() {}

// What a started call finds is kept as what Decide finds, unless units were given back meanwhile.
func TestTheRefusalOfAStartedCallIsKept(t *testing.T) {
	for name, reset := range map[string]bool{"kept": false, "given back meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &starting{counted{Store: memstore.New(nil), back: time.Millisecond}}
				s := newStore(t, inner, nil)
				l := newLimiter(t, s, sash.PerHour(1))
				req := driver.Request{Key: "k", Cost: 1, Policy: l.Policy()}
				var answers []driver.Answer
				var sent time.Time
				for range 2 {
					sent = time.Now()
					s.Start(t.Context(), req, func(answer driver.Answer, err error) {
						answers = append(answers, answer)
						if err != nil {
							t.Error(err)
						}
					})
					synctest.Wait() // decided, and on its way back
					if reset && inner.calls.Load() == 2 {
						if err := l.Reset(t.Context(), "k"); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(time.Second / 2)
					synctest.Wait()
				}
				if len(answers) != 2 || !answers[0].Allowed() || answers[1].Allowed() {
					t.Errorf("%+v", answers)
				}
				if answer, ok := s.Recall(req); ok == reset || ok && answer.Allowed() {
					t.Errorf("%v, %+v", ok, answer)
				}
				time.Sleep(time.Until(sent.Add(denials.DefaultMaxAge)))
				if _, ok := s.Recall(req); ok {
					t.Error("it is kept longer than its age, which begins when the call is sent")
				}
			})
		})
	}
}

func TestOverAStoreThatDoesNotStartNothingIsStarted(t *testing.T) {
	s := newStore(t, memstore.New(nil), nil)
	l := newLimiter(t, s, sash.PerHour(1))
	req := driver.Request{Key: "k", Cost: 1, Policy: l.Policy()}
	if s.Start(t.Context(), req, func(driver.Answer, error) { t.Error("answered") }) != nil {
		t.Error("it was started")
	}
}
