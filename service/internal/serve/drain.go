package serve

import (
	"context"
	"time"
)

// drain returns a context that ends DrainDelay after ctx. In between health is down and requests are answered, because
// load balancers send requests until they have seen that. The second result releases what drain holds.
func (s *instance) drain(ctx context.Context) (context.Context, context.CancelFunc) {
	late, end := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		defer end()
		if s.DrainDelay == 0 {
			return
		}
		s.Log.Info("stopping: health is down, and requests are answered until load balancers have seen it", "for", s.DrainDelay)
		timer := time.NewTimer(s.DrainDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-late.Done():
		}
	})
	return late, func() { forget(); end() }
}
