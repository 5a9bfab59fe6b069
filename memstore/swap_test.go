package memstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
)

// Texts end, make room for others, and those of another store are no texts of this one.
func TestTexts(t *testing.T) {
	now := time.Unix(1e9, 0)
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }})
	swap := func(key, old, text string) (driver.Swapped, error) {
		return store.Swap(t.Context(), key, driver.Swap{Old: old, New: text, Lasts: 1000})
	}
	first, err := swap("0", "", "a")
	if err != nil || first.Text != "a" || first.At != now.UnixMicro() {
		t.Fatalf("%+v, %v", first, err)
	}
	for i := 1; i < 1024; i++ {
		if got, err := swap(fmt.Sprint(i), "", "a"); err != nil || got.Text != "a" || got.Process != first.Process {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := swap("one more", "", "a"); !errors.Is(err, memstore.ErrFull) {
		t.Error(err)
	}
	if got, err := swap("0", "a", "b"); err != nil || got.Text != "b" {
		t.Errorf("a full store: %+v, %v", got, err)
	}
	now = now.Add(time.Millisecond)
	if got, err := swap("0", "", ""); err != nil || got.Text != "" {
		t.Errorf("after its end: %+v, %v", got, err)
	}
	if got, err := swap("one more", "", "a"); err != nil || got.Text != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	if other, err := memstore.New(nil).Swap(t.Context(), "0", driver.Swap{}); err != nil || other.Text != "" || other.Process == first.Process {
		t.Errorf("another store: %+v, %v", other, err)
	}
}
