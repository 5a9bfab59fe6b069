package stats

import (
	"strings"
	"testing"
	"time"
)

// Names beyond the bound come with every request, so those who count them must not wait for one another.
func TestFurtherNamesWaitForNoOther(t *testing.T) {
	b := NewBounded[string, int](1, "other", strings.Clone)
	b.Get("a")
	other := b.Get("b")
	b.mu.RLock() // another looks up a name
	defer b.mu.RUnlock()
	got := make(chan *int, 1)
	go func() { got <- b.Get("c") }()
	select {
	case v := <-got:
		if v != other {
			t.Error("a further name has a value of its own")
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
}
