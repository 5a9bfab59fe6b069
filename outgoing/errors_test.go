package outgoing_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// The errors of requests without room name the bucket, the limit in words, the retry time, and why the call did
// not wait.
func TestARefusalReadsAsASentence(t *testing.T) {
	for name, c := range map[string]struct {
		opts   outgoing.Options
		within time.Duration
		want   string
		cause  error
	}{
		"refused":           {outgoing.Options{Mode: outgoing.Refuse}, 0, "api is constrained to 1 call per 5 seconds; retry after 5s", nil},
		"with a prefix":     {outgoing.Options{Mode: outgoing.Refuse, Prefix: "crawler"}, 0, "api is constrained to 1 call per 5 seconds; retry after 5s", nil},
		"past the deadline": {outgoing.Options{}, time.Second, "api is constrained to 1 call per 5 seconds; retry after 5s, which is past the deadline", context.DeadlineExceeded},
		"past MaxWait":      {outgoing.Options{MaxWait: time.Second}, 0, "api is constrained to 1 call per 5 seconds; retry after 5s: outgoing: the wait is longer than MaxWait", outgoing.ErrMaxWait},
	} {
		bubble(t, name, func(t *testing.T) {
			rt := newTransport(t, newStore(), answer(200), c.opts, sash.Every(1, 5*time.Second), sash.Every(300, time.Minute))
			ok(t, rt)
			ctx := t.Context()
			if c.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.within)
				defer cancel()
			}
			_, err := get(ctx, rt)
			var limited *sash.LimitedError
			if !errors.As(err, &limited) || limited.Error() != c.want || !strings.HasSuffix(err.Error(), ": "+c.want) {
				t.Errorf("the error reads\n%v, want\n%s", err, c.want)
			}
			if c.cause != nil && !errors.Is(err, c.cause) {
				t.Errorf("the cause is %v, want %v", errors.Unwrap(limited), c.cause)
			}
			if limited != nil && limited.Key != "api" {
				t.Errorf("the key is %q; the route gave api", limited.Key)
			}
		})
	}
}
