package admin

import (
	"testing"
	"time"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/wire"
)

// A blocked subject says until when, and a reset lets it in.
func TestABlockedSubject(t *testing.T) {
	w := begin(t, one)
	cfg, err := config.Parse("x.yaml", []byte("domain: d\ndescriptors: [{key: user, limits: [1/1m, 3/1h], block: {refusals: 2, for: 10m}}]\n"))
	if err == nil {
		err = w.decider.Use(cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	type look struct {
		At      time.Time
		Until   *time.Time `json:"blocked_until"`
		Limits  []wire.Usage
		Subject string
	}
	subject := func() (l look) {
		w.says(&l, 200, "GET", "/admin/v1/subject?domain=d&entry=user:ann", "")
		return l
	}
	w.asks("user", "ann")
	w.asks("user", "ann")
	if l := subject(); l.Until != nil || *l.Limits[1].Used != 1 {
		t.Errorf("before the block: %+v", l)
	}
	w.asks("user", "ann")
	began := time.Now()
	l := subject()
	if l.Until == nil || l.Until.After(began.Add(10*time.Minute)) || l.Until.Before(began.Add(10*time.Minute-5*time.Second)) {
		t.Fatalf("during the block: %+v", l)
	}
	for _, u := range l.Limits { // the first is full for less than the block, and the second has units left
		if *u.Remaining != 0 || u.Used != nil || time.Duration(*u.ReleaseAfter) != l.Until.Sub(l.At) {
			t.Errorf("during the block: %+v", u)
		}
	}
	w.says(&struct{}{}, 200, "POST", "/admin/v1/reset", `{`+ann+`}`)
	if l := subject(); l.Until != nil || !w.asks("user", "ann") {
		t.Errorf("after the reset: %+v", l)
	}
}
