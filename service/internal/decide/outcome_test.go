package decide

import (
	"errors"
	"fmt"
	"testing"

	"example.com/sash"
	"example.com/sash/failover"
)

func TestCause(t *testing.T) {
	for want, err := range map[string]error{
		"down":          &sash.StoreError{Err: fmt.Errorf("%w: %w", failover.ErrDown, failover.ErrBudget)},
		"busy":          &sash.StoreError{Err: failover.ErrBusy},
		"budget":        &sash.StoreError{Err: failover.ErrBudget},
		"misconfigured": &sash.StoreError{Err: errors.New("NOAUTH Authentication required")},
		"error":         &sash.StoreError{Err: errors.New("connection reset by peer")},
	} {
		if got := Cause(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}
