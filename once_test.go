package sash_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestAllowOnceRefusesWrongCalls(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(10))
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		id, key string
		cost    int64
		want    error
	}{
		{"no id", t.Context(), "", "k", 1, sash.ErrInvalidID},
		{"a long id", t.Context(), strings.Repeat("x", sash.MaxIDLength+1), "k", 1, sash.ErrInvalidID},
		{"no key", t.Context(), "id", "", 1, sash.ErrInvalidKey},
		{"no cost", t.Context(), "id", "k", 0, sash.ErrInvalidCost},
		{"a cost that never fits", t.Context(), "id", "k", 11, sash.ErrCostAboveLimit},
		{"a caller that is gone", gone, "id", "k", 1, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			if res, err := l.AllowOnce(c.ctx, c.id, c.key, c.cost); !errors.Is(err, c.want) || res.Allowed {
				t.Errorf("%+v, %v; want %v", res, err, c.want)
			}
		})
	}
	if _, err := l.AllowOnce(t.Context(), strings.Repeat("x", sash.MaxIDLength), "k", 10); err != nil {
		t.Error(err)
	}
	if res, err := l.AllowOnce(t.Context(), "y", "k", 1); err != nil || res.Allowed {
		t.Errorf("a wrong call was charged, or the right one was not: %+v, %v", res, err)
	}
}

func TestAllowOnceNeedsAStoreThatKnowsIDs(t *testing.T) {
	l := newLimiter(t, struct{ driver.Store }{memstore.New(nil)}, nil, sash.PerHour(10))
	if _, err := l.AllowOnce(t.Context(), "id", "k", 1); !errors.Is(err, sash.ErrUnsupported) {
		t.Error(err)
	}
}
