package modeltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/internal/redistest"
)

func TestInstancesAreCountedWhileTheyLive(t *testing.T) {
	store, clock, _ := virtual(t, redistest.Start(t).Addr(), nil)
	const ttl = 10 * time.Second
	beat := func(group, id string, want int) {
		t.Helper()
		n, err := store.Instances(context.Background(), group, id, ttl)
		if err != nil || n != want {
			t.Errorf("%s counts %d instances, want %d (%v)", id, n, want, err)
		}
	}
	for i := range 4 {
		beat("g", fmt.Sprint("i", i), i+1)
	}
	beat("g", "i0", 4) // it is counted once
	beat("another", "i0", 1)
	clock.Advance(6 * time.Second)
	for _, id := range []string{"i0", "i1", "i3"} {
		beat("g", id, 4)
	}
	clock.Advance(4*time.Second - time.Millisecond)
	beat("g", "i0", 4)
	clock.Advance(time.Millisecond)
	beat("g", "i1", 3) // i2 has died
	beat("g", "i2", 4) // and comes back
	clock.Advance(time.Hour)
	beat("g", "i3", 1)
}

func TestGroupsOfInstancesGo(t *testing.T) {
	l := startLive(t)
	for _, ttl := range []time.Duration{time.Hour, time.Minute} { // the shorter does not shorten it
		if _, err := l.store.Instances(t.Context(), "g", ttl.String(), ttl); err != nil {
			t.Fatal(err)
		}
		left, err := l.client.PTTL(t.Context(), "sash:instances:g").Result()
		if err != nil || left > time.Hour || left < 59*time.Minute {
			t.Errorf("the group lives for %v (%v)", left, err)
		}
	}
	for _, wrong := range []struct {
		group, id string
		ttl       time.Duration
		want      error
	}{{"", "i", time.Second, sash.ErrInvalidKey}, {"g", "", time.Second, sash.ErrInvalidKey}, {"g", "i", 0, sash.ErrInvalidLimit}} {
		if n, err := l.store.Instances(t.Context(), wrong.group, wrong.id, wrong.ttl); !errors.Is(err, wrong.want) {
			t.Errorf("%+v: %d, %v", wrong, n, err)
		}
	}
}
