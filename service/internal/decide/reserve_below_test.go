package decide

import (
	"testing"
	"time"

	"example.com/sash/service/internal/config"
)

// A class with reserve_below counts with the descriptor above it, and stops while the last part of its limits is
// left to others, whichever class used the rest.
func TestAReserveIsLeftToOthers(t *testing.T) {
	d, clock := decider(t, `
domain: d
descriptors:
  - key: quota
    limits: ["100/1m"]
    descriptors:
      - {key: class, value: cron, reserve_below: 5%}
      - {key: class, value: batch, reserve_below: 50%}
`)
	until := func(text string) (n int) {
		t.Helper()
		for {
			answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part(text, 1)}, Lenient: true})
			if err != nil {
				t.Fatal(err)
			}
			if answers[0].Refused {
				if by := answers[0].RefusedBy.Limit.Name; by != "100/1m" {
					t.Errorf("%s was refused by %q", text, by)
				}
				return n
			}
			n++
		}
	}
	if n := until("quota=a class=batch"); n != 50 {
		t.Errorf("batch got %d of the first half", n)
	}
	if n := until("quota=a class=cron"); n != 45 {
		t.Errorf("cron got %d up to 95", n)
	}
	if n := until("quota=a"); n != 5 {
		t.Errorf("people got %d, and 5 were left to them", n)
	}
	if n := until("quota=b class=cron"); n != 95 {
		t.Errorf("another subject's cron got %d", n)
	}
	clock.move(time.Minute)
	if v, err := one(t.Context(), d, One("d", part("quota=a class=cron", 1).Entries, nil)); err != nil || !v.Allowed() || remaining(v) != 94 {
		t.Errorf("a window later: %+v, %v", v, err)
	}
	if found, err := d.Config().Find("d", part("quota=a class=cron", 1).Entries); err != nil || found.Key != config.Key("d", part("quota=a", 1).Entries) || found.Metric != "d.quota.class_cron" {
		t.Errorf("%+v, %v", found, err)
	}
	if got := d.Config().Rules()[1].Describe(); got != "reserve_below 5%: 95 of 100/1m" {
		t.Errorf("it is described as %q", got)
	}
}
