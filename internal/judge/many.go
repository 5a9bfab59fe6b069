package judge

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// WalkMany makes random calls on several subjects in one round trip, and other calls on them. If an answer differs from the
// definition, it returns an error with the calls that led to it. It does nothing if the store is no [driver.Gatherer].
func WalkMany(s Setup) error {
	store, ok := driver.As[driver.Gatherer](s.Store)
	if !ok {
		return nil
	}
	w := &walk{Setup: s, oracle: New(), opts: sash.Options{Algorithm: s.Algorithm, CountRefused: s.Choose(5) == 4}}
	if err := w.draw(); err != nil {
		return err
	}
	return w.run(func() error { return w.stepMany(store) })
}

func (w *walk) stepMany(store driver.Gatherer) error {
	switch w.Choose(10) {
	default:
		return w.many(store)
	case 4:
		return w.call(w.request())
	case 5:
		w.move(time.Duration(1+w.Choose(2_000_000)) * time.Microsecond)
	case 6:
		return w.edge()
	case 7:
		if w.Forward {
			return nil
		}
		w.back = max(w.back, w.Now().UnixMicro(), w.oracle.latest())
		w.move(-time.Duration(1+w.Choose(1_000_000)) * time.Duration(1+w.Choose(20)) * time.Microsecond)
		w.admitted, w.again, w.before = nil, nil, nil
	case 8:
		return w.settle()
	case 9:
		return w.reset()
	}
	return nil
}

// many makes calls on several subjects in one round trip, and checks each answer by itself.
func (w *walk) many(store driver.Gatherer) error {
	var reqs []driver.Request
	for i := range 1 + w.Choose(5) {
		req := w.request()
		req.Key, req.Within = fmt.Sprintf("%sk%d", w.Prefix, i), 0
		if w.Choose(6) == 5 {
			req.Cost = 0
		}
		if _, ok := store.Gathers(&req); !ok {
			return w.call(req)
		}
		reqs = append(reqs, req)
	}
	w.note("%d calls in one", len(reqs))
	answers, errs := store.DecideMany(context.Background(), reqs)
	if len(answers) != len(reqs) || len(errs) != len(reqs) {
		return fmt.Errorf("DecideMany: %d answers and %d errors to %d requests", len(answers), len(errs), len(reqs))
	}
	for i := range reqs {
		if errs[i] != nil {
			return fmt.Errorf("DecideMany: request %d: %w", i, errs[i])
		}
		if err := w.check(reqs[i:i+1], answers[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}
