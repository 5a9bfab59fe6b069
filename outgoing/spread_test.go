package outgoing

import (
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

// grown returns spreads that have seen n requests that took from least to most, evenly.
func grown(n int, least, most time.Duration, fresh bool) *spreads {
	s := newSpreads(0)
	for i := range n {
		s.took("api", least+(most-least)*time.Duration(i)/time.Duration(n-1), fresh)
	}
	return s
}

func TestTheSpreadIsLearntFromWhatRequestsTake(t *testing.T) {
	for name, c := range map[string]struct {
		seen        *spreads
		window      time.Duration
		least, most time.Duration
	}{
		"unknown":                  {newSpreads(0), 5 * time.Second, 500 * ms, 500 * ms},
		"unknown, a long window":   {newSpreads(0), time.Hour, time.Second, time.Second},
		"three are too few":        {grown(3, 0, ms, false), 5 * time.Second, 500 * ms, 500 * ms},
		"few may be exceeded":      {grown(8, 200*ms, 300*ms, false), 5 * time.Second, 200 * ms, 250 * ms},
		"many":                     {grown(100, 200*ms, 300*ms, false), 5 * time.Second, 108 * ms, 158 * ms},
		"all equally far":          {grown(100, 900*ms, 900*ms, false), 5 * time.Second, 100 * ms, 100 * ms},
		"all equally far, a burst": {grown(100, 900*ms, 900*ms, false), 100 * ms, 2 * ms, 2 * ms},
		"bounded by the window":    {grown(100, 0, 30*time.Second, false), 5 * time.Second, 1250 * ms, 1250 * ms},
		"bounded":                  {grown(100, 0, 30*time.Second, false), time.Hour, 2 * time.Second, 2 * time.Second},
		"given":                    {newSpreads(7 * ms), 5 * time.Second, 7 * ms, 7 * ms},
		"none":                     {newSpreads(-1), 5 * time.Second, 0, 0},
	} {
		if d := c.seen.of("api", c.window); d < c.least || d > c.most {
			t.Errorf("%s: the spread for windows of %v is %v, want %v to %v", name, c.window, d, c.least, c.most)
		}
	}
}

// Requests on warm connections do not push out what a new connection takes, which is rare.
func TestNewConnectionsAreRemembered(t *testing.T) {
	s := grown(4, 400*ms, 400*ms, true)
	for range 1000 {
		s.took("api", 10*ms, false)
	}
	if d := s.of("api", 5*time.Second); d < 390*ms {
		t.Errorf("the spread is %v, and a new connection takes 390ms longer", d)
	}
}

func TestASpreadFollowsTheWays(t *testing.T) {
	s := grown(100, 0, time.Second, false)
	for range 128 {
		s.took("api", 10*ms, false)
	}
	if d := s.of("api", 5*time.Second); d != 100*ms {
		t.Errorf("the spread is %v after 128 equal requests", d)
	}
}

func TestTheSpreadOfAnUnusedBucketIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grown(100, 0, 300*ms, false)
		time.Sleep(waysKept + 1)
		if d := s.of("api", 5*time.Second); d != 500*ms {
			t.Errorf("the spread is %v an hour later, want that of an unknown bucket", d)
		}
	})
}

func TestEachBucketHasItsOwnSpread(t *testing.T) {
	s := grown(100, 0, 300*ms, false)
	for range 100 {
		s.took("other", 0, false)
	}
	if near, far := s.of("other", 5*time.Second), s.of("api", 5*time.Second); near != 100*ms || far < 300*ms {
		t.Errorf("the spreads are %v and %v", near, far)
	}
}
