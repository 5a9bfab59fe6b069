package watch

import (
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/wire"
)

// A screen whose stream has ended shows old numbers faint, and since when; the next state ends that.
func TestScreenDimsOldNumbers(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	s := &screen{from: "http://admin.example", width: 120, height: 40}
	s.Update(wire.Event{At: wire.Instant(at)})
	numbers := func() string {
		for line := range strings.Lines(s.View().Content) {
			if strings.Contains(line, "requests/s") {
				return line
			}
		}
		return ""
	}
	if line := numbers(); line == "" || strings.Contains(line, "\x1b") {
		t.Errorf("the numbers are not plain: %q", line)
	}
	s.Update(lost{})
	want := "no state from http://admin.example since " + at.Local().Format(time.TimeOnly)
	if line := numbers(); !strings.HasPrefix(line, "\x1b[2m") || !strings.Contains(s.View().Content, want) {
		t.Errorf("the numbers are not faint, or there is no %q: %q", want, s.View().Content)
	}
	s.Update(wire.Event{At: wire.Instant(at)})
	if text := s.View().Content; strings.Contains(text, "no state from") || strings.Contains(numbers(), "\x1b") {
		t.Errorf("it is still lost: %q", text)
	}
}
