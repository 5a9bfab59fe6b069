package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/decide"
)

// logRefusals logs the refusals of a decider, at a time that the test moves.
func logRefusals(t *testing.T, keys bool) (*decide.Decider, *time.Time, func() []map[string]any) {
	t.Helper()
	var text bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	log := newRefusals(slog.New(slog.NewJSONHandler(&text, nil)), true, keys)
	d := decider(t)
	d.Observe(func(ctx context.Context, o *decide.Observation) {
		o.Began, o.Took = now, 0
		log.observe(ctx, o)
	})
	return d, &now, func() []map[string]any {
		var lines []map[string]any
		for line := range strings.Lines(text.String()) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, m)
		}
		text.Reset()
		return lines
	}
}

func TestARefusalIsLoggedWithItsLimit(t *testing.T) {
	d, _, lines := logRefusals(t, false)
	for range 2 {
		ask(t, d, "user", "ann")
	}
	if got := lines(); len(got) != 0 {
		t.Errorf("admitted requests are logged: %v", got)
	}
	ask(t, d, "user", "ann")
	got := lines()
	if len(got) != 1 {
		t.Fatalf("%d lines", len(got))
	}
	line := got[0]
	for key, want := range map[string]any{
		"level": "INFO", "msg": "refused", "domain": "d", "rule": "user", "limit": "2/1h", "units": 1.0, "source": "store", "not_logged_before": 0.0,
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if retry, _ := line["retry_after"].(float64); retry <= 0 || retry > 3600 {
		t.Errorf("retry_after %v", line["retry_after"])
	}
	if _, has := line["key"]; has {
		t.Errorf("the key is logged: %v", line)
	}
}

// What does not bind is logged as such, and so is what only a candidate would have refused. An enforced candidate's refusals
// are refusals.
func TestWhatDoesNotBindIsLogged(t *testing.T) {
	d, now, lines := logRefusals(t, false)
	for key, want := range map[string]string{"soft": "shadow", "never": "limit", "tried": "limit", "held": "limit"} {
		for range 6 {
			ask(t, d, key, "ann")
		}
		got := lines()
		if text := map[string]string{"tried": "a candidate would have refused what was allowed"}[key]; len(got) != 1 ||
			got[0]["msg"] != cmp.Or(text, "refused") || got[0][want] == nil || got[0][want] == "" || got[0]["key"] != nil {
			t.Errorf("%s: %v", key, got)
		}
	}
	*now = now.Add(time.Second)
	ask(t, d, "tried", "ann")
	if got := lines(); len(got) != 1 || got[0]["not_logged_before"] != 3.0 || got[0]["limit"] != "2/1h" {
		t.Errorf("the next line is %v", got)
	}
}

func TestKeysAreLoggedOnRequest(t *testing.T) {
	for _, tt := range []struct {
		key  string
		keys bool
		want bool
	}{{"user", false, false}, {"user", true, true}, {"detailed", false, true}} {
		d, _, lines := logRefusals(t, tt.keys)
		for range 3 {
			ask(t, d, tt.key, "ann")
		}
		got := lines()
		if len(got) != 1 {
			t.Fatalf("%d lines", len(got))
		}
		if key, _ := got[0]["key"].(string); strings.Contains(key, "ann") != tt.want {
			t.Errorf("%s with keys %v: %v", tt.key, tt.keys, got[0])
		}
	}
}
