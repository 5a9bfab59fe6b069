package cli

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// drain returns a context that ends --drain-delay after another. In between health is down and requests are answered,
// because load balancers go on sending until they have seen that. The second result frees what it holds.
func (s *serving) drain(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		defer end()
		if s.drainDelay == 0 {
			return
		}
		log.Info("stopping: health is down, and requests are answered until load balancers have seen it", "for", s.drainDelay)
		timer := time.NewTimer(s.drainDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-late.Done():
		}
	})
	return late, func() { forget(); end() }
}

// checkDrain says what is wrong with the delay.
func (s *serving) checkDrain() error {
	if s.drainDelay < 0 {
		return fmt.Errorf("--drain-delay %v: it is a time such as 5s, or 0 for none", s.drainDelay)
	}
	return nil
}
