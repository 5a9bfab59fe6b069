package watch_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/watch"
	"example.com/sash/service/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream returns the URL of an admin port that sends events.
func stream(t *testing.T, status int, events string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/admin/v1/events" {
			t.Errorf("the client requests %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(events))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const state = "event: state\ndata: {\"authenticated\":false,\"requests\":{\"count\":{\"allowed\":7}}}\n\n"

func TestWatchReadsStates(t *testing.T) {
	url := stream(t, 200, "event: history\ndata: {}\n\n: a comment\n\n"+state+state+state)
	var seen []int64
	err := (&watch.Client{Admin: url + "/"}).Watch(t.Context(), func(s wire.Event, text []byte) bool {
		seen = append(seen, s.Requests.Count.Allowed)
		return len(seen) < 2
	})
	if err != nil || len(seen) != 2 || seen[1] != 7 {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestWatchReturnsWhatIsWrong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, c := range map[string]struct {
		client watch.Client
		want   string
	}{
		"no server":        {watch.Client{Admin: "http://127.0.0.1:1"}, "no admin port answers at http://127.0.0.1:1"},
		"another server":   {watch.Client{Admin: stream(t, 404, "")}, "is no admin port of sash serve: it answers 404 Not Found"},
		"too many":         {watch.Client{Admin: stream(t, 503, "")}, "has too many open streams"},
		"no JSON":          {watch.Client{Admin: stream(t, 200, "event: state\ndata: {\n\n")}, "sent an event that cannot be read"},
		"the stream ended": {watch.Client{Admin: stream(t, 200, state)}, "ended the stream"},
	} {
		err := c.client.Watch(ctx, func(wire.Event, []byte) bool { return true })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	c := watch.Client{Admin: stream(t, 200, state), Token: "another"}
	if err := c.Watch(ctx, func(wire.Event, []byte) bool { return true }); !errors.Is(err, watch.ErrToken) {
		t.Errorf("a wrong token: %v", err)
	}
}

// Values of requests cannot control the terminal, and lines fit its size.
func TestTextFitsTheTerminal(t *testing.T) {
	s := &wire.Event{Top: &wire.Top{}}
	for range 50 {
		s.Rules = append(s.Rules, stats.Series{Rule: strings.Repeat("long", 50)})
		s.Top.Units = append(s.Top.Units, stats.Subject{Subject: "d:user:\x1b[2J\r\n界", Count: 12})
	}
	text := watch.Text(s, 80, 40, false)
	if strings.ContainsAny(text, "\x1b\r") || !strings.Contains(text, "d:user:\ufffd[2J\ufffd\ufffd界") {
		t.Errorf("a subject is not escaped: %q", text)
	}
	lines := strings.Split(text, "\n")
	if len(lines) > 40 || !strings.Contains(text, "Most refused") {
		t.Errorf("%d lines, or a table is missing", len(lines))
	}
	for _, line := range lines {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	if text := watch.Text(&wire.Event{}, 0, 0, false); !strings.Contains(text, "--token-file") {
		t.Error("the text does not say how to show subjects")
	}
}

// In an outage the text names the address, the cause, since when, and what nobody counted; a rule without decisions has no
// refused share.
func TestTextShowsAnOutage(t *testing.T) {
	const down = `{"store":{"status":"degraded","store":"down","address":"redis.example:6379","cause":"refused",
		"reason":"accepts no connections","error":"dial tcp: \u001b refused","uncounted":1240,"since":"2026-05-04T03:02:01Z"},
		"rules":[{"rule":"d.closed","count":{"error":8},"rate":{"error":4},"share":{"refused":null,"uncounted":0,"error":1}},
		{"rule":"d.open","count":{"uncounted":8},"rate":{"uncounted":4},"share":{"refused":null,"uncounted":1,"error":0}}]}`
	const full = `{"store":{"status":"degraded","store":"memory","cause":"full","reason":"has no place for a new subject","since":"2026-05-04T03:02:01Z"}}`
	const back = `{"store":{"status":"ok","store":"up","uncounted":1240,"since":"2026-05-04T03:02:01Z"}}`
	since := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC).Local().Format(time.TimeOnly)
	for state, wants := range map[string][]string{
		down: {
			"Redis at redis.example:6379 accepts no connections (refused) since " + since + ":", "1240 requests went ahead uncounted since then",
			"dial tcp: \ufffd refused", "d.closed      4.0          -          0.0          100.0", "d.open        4.0          -        100.0            0.0",
		},
		full: {"the store in memory has no place for a new subject (full) since " + since},
		back: {"Redis is back since " + since + ": 1240 requests went ahead uncounted before"},
	} {
		var s wire.Event
		if err := json.Unmarshal([]byte(state), &s); err != nil {
			t.Fatal(err)
		}
		text := watch.Text(&s, 0, 0, false)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("there is no %q in:\n%s", want, text)
			}
		}
	}
}

// The key q quits while the stream goes on.
func TestScreenEndsOnQ(t *testing.T) {
	going := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(state))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(going.Close)
	keys, press := io.Pipe()
	out := &shown{want: "\x1b", there: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- (&watch.Client{Admin: going.URL}).Screen(t.Context(), keys, out) }()
	<-out.there
	if _, err := press.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	_ = press.Close()
}

// shown is a terminal that closes there when a text is written to it.
type shown struct {
	text  strings.Builder
	want  string
	there chan struct{}
	found bool
}

// Write is called by one goroutine at a time.
func (s *shown) Write(b []byte) (int, error) {
	s.text.Write(b)
	if !s.found && strings.Contains(s.text.String(), s.want) {
		s.found = true
		close(s.there)
	}
	return len(b), nil
}
