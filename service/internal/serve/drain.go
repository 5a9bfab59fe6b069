package serve

import (
	"context"
	"errors"
	"time"
)

// ErrInterrupted is the cause of a context that somebody at a terminal has ended: Run then ends without DrainDelay.
var ErrInterrupted = errors.New("interrupted")

// drain returns a context that ends DrainDelay after ctx. In between health is down and requests are answered, because
// load balancers send requests until they have seen that. The second result releases what drain holds.
func (s *instance) drain(ctx context.Context) (context.Context, context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		defer end()
		if s.DrainDelay == 0 || errors.Is(context.Cause(ctx), ErrInterrupted) {
			return
		}
		s.Log.Info("stopping: health is down, and requests are answered until load balancers have seen it (--drain-delay)", "for", s.DrainDelay)
		timer := time.NewTimer(s.DrainDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-late.Done():
		}
	})
	return late, func() { forget(); end() }
}
