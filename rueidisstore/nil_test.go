package rueidisstore_test

import (
	"strings"
	"testing"

	"example.com/sash/rueidisstore"
)

func TestNewPanicsWithoutAClient(t *testing.T) {
	defer func() {
		if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "rueidisstore: New needs a client") {
			t.Errorf("it did not say what it needs: %v", p)
		}
	}()
	rueidisstore.New(nil, nil)
}
