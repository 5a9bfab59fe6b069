package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
)

// says is a Scripter whose server replies the same to every script.
type says string

func (s says) Run(context.Context, *Script, []string, string) (string, error) { return string(s), nil }
func (s says) Cluster() bool                                                  { return false }

// TestAShortReplyToABatchIsAnError states that whatever a server replies to a batch ends in answers or an error.
func TestAShortReplyToABatchIsAnError(t *testing.T) {
	policy, err := sash.NewPolicy(nil, sash.PerMinute(10))
	if err != nil {
		t.Fatal(err)
	}
	reqs := []driver.Request{{Key: "k", Cost: 1, Policy: policy}, {Key: "k", Cost: 1, Policy: policy}}
	for size := range 2 * (24 + 32) {
		_, err := New(says(strings.Repeat("\x00", size)), nil).DecideEach(t.Context(), reqs)
		if err == nil || errors.Is(err, driver.ErrApart) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := New(says(strings.Repeat("\x00", 2*(24+32))), nil).DecideEach(t.Context(), reqs); err != nil {
		t.Errorf("a whole reply: %v", err)
	}
}
