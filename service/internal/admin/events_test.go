package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/stats"
)

// A stream is one of events.
type stream struct {
	*reply
	*bufio.Reader
	end func()
}

// watch opens a stream of events.
func (w *world) watch(t *testing.T, token string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+"/admin/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := w.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	end := func() { _ = res.Body.Close() }
	t.Cleanup(end)
	return &stream{&reply{res.StatusCode, res.Header, res.Cookies()}, bufio.NewReader(res.Body), end}
}

// event reads an event of a kind.
func event(t *testing.T, from *stream, kind string, into any) {
	t.Helper()
	for at := ""; ; {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatalf("no %s: %v", kind, err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "event":
			at = value
		case name == "data" && at == kind:
			if err := json.Unmarshal([]byte(value), into); err != nil {
				t.Fatalf("%s: %v", value, err)
			}
			return
		}
	}
}

// Events contain counts and the store, and subjects only for callers with the token.
func TestEventsHideSubjectsWithoutAccess(t *testing.T) {
	w := begin(t, one)
	for range 4 {
		w.asks("user", "ann")
	}
	stream := w.watch(t, "")
	var now snapshot
	for now.Requests.Count.Sum() < 4 {
		event(t, stream, "state", &now)
	}
	if now.Requests.Count != (stats.Counts{Allowed: 3, Refused: 1}) || len(now.Rules) != 1 || now.Rules[0].Rule != "d.user" || now.Store.Store != "memory" {
		t.Errorf("without access: %+v", now)
	}
	if now.Authenticated || now.Top != nil {
		t.Errorf("subjects without access: %+v", now.Top)
	}
	stream = w.watch(t, "a-wrong-token-of-the-length")
	if stream.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a wrong token: %d", stream.StatusCode)
	}
	stream = w.watch(t, token)
	if event(t, stream, "state", &now); stream.Header.Get("Content-Type") != "text/event-stream" || !now.Authenticated {
		t.Errorf("with the token: %v %+v", stream.Header, now)
	}
	if len(now.Top.Units) != 1 || now.Top.Units[0].Subject != "d:user:ann" || now.Top.Units[0].Count != 4 || len(now.Top.Refused) != 1 || now.Top.Refused[0].Count != 1 {
		t.Errorf("the busiest are %+v", now.Top)
	}
}

// Streams are bounded, callers without access cannot take all of them, and a stream that ends makes room.
func TestStreamsAreBounded(t *testing.T) {
	w := begin(t, one)
	var first *stream
	for i := range maxStreams {
		brings := ""
		if i >= maxPublic {
			brings = token
		}
		stream := w.watch(t, brings)
		if event(t, stream, "state", new(snapshot)); i == 0 {
			first = stream
		}
		if i+1 < maxPublic {
			continue
		}
		if stream := w.watch(t, ""); stream.StatusCode != http.StatusServiceUnavailable || stream.Header.Get("Retry-After") == "" {
			t.Fatalf("without access, beside %d others: %d", i+1, stream.StatusCode)
		}
	}
	if stream := w.watch(t, token); stream.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("one stream too many: %d", stream.StatusCode)
	}
	first.end()
	for { // the service notices at the next event
		stream := w.watch(t, token)
		stream.end()
		if stream.StatusCode == http.StatusOK {
			return
		}
	}
}

// Streams end with the service, and outlive the times that it gives to other answers.
func TestStreamsEndWithTheService(t *testing.T) {
	w := begin(t, Access{})
	short := httptest.NewUnstartedServer(w.server.Config.Handler)
	short.Config.ReadTimeout, short.Config.WriteTimeout = 100*time.Millisecond, 100*time.Millisecond
	short.Start()
	t.Cleanup(short.Close)
	w.server.Close()
	w.server = short
	stream := w.watch(t, "")
	for range 3 { // a second apart
		event(t, stream, "state", new(snapshot))
	}
	close(w.ends)
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the stream did not end as it should: %v", err)
	}
}

// Charges lists the charges of a key's log to callers with access, or why there are none.
func TestCharges(t *testing.T) {
	w := begin(t, one)
	w.asks("user", "ann")
	w.asks("user", "ann")
	var got struct {
		Subject, Algorithm string
		Count              int
		Entries            []struct{ Units int64 }
		Limits             []struct{ Name string }
		Why                string
	}
	w.says(&got, http.StatusOK, "GET", "/admin/v1/charges?domain=d&entry=user:ann", "")
	units := int64(0)
	for _, e := range got.Entries {
		units += e.Units
	}
	if got.Subject != "d:user:ann" || got.Algorithm != "sliding-log" || units != 2 || len(got.Limits) != 1 || got.Limits[0].Name != "3/1h" || got.Why != "" {
		t.Errorf("%+v", got)
	}
	got.Entries = nil
	w.says(&got, http.StatusOK, "GET", "/admin/v1/charges?domain=d&entry=free:x", "")
	if got.Entries != nil || got.Why != "nothing is counted for this subject" {
		t.Errorf("of what is not counted: %+v", got)
	}
	if res, _ := w.send("GET", "/admin/v1/charges?domain=d&entry=user:ann", "", "Authorization: none"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %d", res.StatusCode)
	}
}

// Many charges are merged, none to an earlier time, and none is lost.
func TestManyChargesAreMerged(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	var all []Charge
	for i := range 50_000 {
		all = append(all, Charge{begin.Add(time.Duration(i*i) * time.Microsecond), 1 + int64(i%3)})
	}
	merged, step := merge(all)
	if len(merged) > mostCharges || step == 0 {
		t.Fatalf("%d entries, merged within %v", len(merged), time.Duration(step))
	}
	next, units := 0, int64(0)
	for _, m := range merged {
		for ; next < len(all) && !all[next].At.After(time.Time(m.At)); next++ {
			if time.Time(m.At).Sub(all[next].At) > time.Duration(step) {
				t.Fatalf("a charge of %v is merged at %v", all[next].At, time.Time(m.At))
			}
			units += all[next].Units
		}
		if units -= m.Units; units != 0 {
			t.Fatalf("%d units are missing or too many at %v", units, time.Time(m.At))
		}
	}
	if few, none := merge(all[:3]); next != len(all) || len(few) != 3 || none != 0 {
		t.Errorf("%d of %d are listed, and of three %d", next, len(all), len(few))
	}
}

// The page and its parts are there, and may load nothing from elsewhere.
func TestDashboard(t *testing.T) {
	w := begin(t, Access{})
	res, page := w.send("GET", "/dashboard", "")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Security-Policy"), "default-src 'self';") {
		t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	parts := strings.Count(page, `"/dashboard/`)
	for part := range strings.SplitSeq(page, `"/dashboard/`) {
		name, _, _ := strings.Cut(part, `"`)
		if strings.HasPrefix(part, "<") {
			continue
		}
		if res, _ := w.send("GET", "/dashboard/"+name, ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
	if parts < 3 || strings.Contains(page, "<script>") || strings.Contains(page, "style=") || strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Errorf("%d parts, or something that the policy forbids: %s", parts, page)
	}
	for _, path := range []string{"/dashboard/", "/dashboard/no.js", "/dashboard/../admin.go", "/dashboard/page"} {
		if res, _ := w.send("GET", path, ""); res.StatusCode == http.StatusOK {
			t.Errorf("%s is there", path)
		}
	}
	if _, text := w.send("GET", "/", ""); !strings.Contains(text, "/dashboard") {
		t.Error(fmt.Sprint("/ does not name the dashboard: ", text))
	}
}
