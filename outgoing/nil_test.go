package outgoing_test

import (
	"net/http"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

func TestConstructorsRefuseNil(t *testing.T) {
	for _, store := range []driver.Store{nil, (*memstore.Store)(nil)} {
		func() {
			defer func() {
				if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "outgoing: New needs a store") {
					t.Errorf("%T: it did not say what it needs: %v", store, p)
				}
			}()
			_, _ = outgoing.New(store, outgoing.Everything("x"), nil, sash.PerMinute(1))
		}()
	}
	opts := &outgoing.Options{Base: (*http.Transport)(nil)}
	if _, err := outgoing.New(memstore.New(nil), outgoing.Everything("x"), opts, sash.PerMinute(1)); err == nil || !strings.Contains(err.Error(), "Base is a nil") {
		t.Errorf("a nil transport: %v", err)
	}
}
