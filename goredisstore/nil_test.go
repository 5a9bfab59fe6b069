package goredisstore_test

import (
	"strings"
	"testing"

	"example.com/sash/goredisstore"
)

func TestNewPanicsWithoutAClient(t *testing.T) {
	defer func() {
		if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "goredisstore: New needs a client") {
			t.Errorf("it did not say what it needs: %v", p)
		}
	}()
	goredisstore.New(nil, nil)
}
