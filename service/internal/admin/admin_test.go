package admin

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
)

const (
	ann = `"domain":"d","entries":[{"key":"user","value":"ann"}]`
	eve = `"domain":"d","entries":[{"key":"user","value":"eve"}]`
)

func TestABan(t *testing.T) {
	w := begin(t, one)
	var made, gone exception
	w.says(&made, 200, "POST", "/admin/v1/bans", `{`+eve+`,"expires":"2h","reason":"scraping"}`)
	if w.asks("user", "eve") || !w.asks("user", "ann") {
		t.Error("not eve is refused, or not only she")
	}
	if made.Subject != "d:user:eve" || made.By != "token 1" || made.Reason != "scraping" || !made.InEffect || len(made.ID) != 16 ||
		time.Duration(made.ExpiresIn).Round(time.Minute) != 2*time.Hour || len(made.Limits) != 0 {
		t.Errorf("set %+v", made)
	}
	var all struct{ Bans []exception }
	w.says(&all, 200, "GET", "/admin/v1/bans", "")
	if len(all.Bans) != 1 || all.Bans[0].ID != made.ID || all.Bans[0].Entries[0] != (config.Entry{Key: "user", Value: "eve"}) {
		t.Errorf("listed %+v", all)
	}
	var look struct {
		Ban    *exception
		Limits []usage
	}
	w.says(&look, 200, "GET", "/admin/v1/subject?domain=d&entry=user:eve", "")
	if look.Ban == nil || look.Ban.ID != made.ID || len(look.Limits) != 1 || *look.Limits[0].Used != 0 {
		t.Errorf("the subject: %+v", look)
	}
	w.says(&gone, 200, "DELETE", "/admin/v1/bans/"+made.ID, "")
	if !w.asks("user", "eve") || gone.ID != made.ID {
		t.Error("she stays banned")
	}
	if res, _ := w.send("DELETE", "/admin/v1/bans/"+made.ID, ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("deleted twice: %d", res.StatusCode)
	}
	for _, want := range []string{"an exception was set", "kind=ban", "subject=d:user:eve", "reason=scraping", `by="token 1"`, "an exception was deleted"} {
		if !strings.Contains(w.logs.String(), want) {
			t.Errorf("%q is not in the log: %s", want, w.logs)
		}
	}
}

// A ban of a network is shown with each subject that it refuses, and says why it has no effect once nothing can match it.
func TestABanOfANetwork(t *testing.T) {
	w := begin(t, one)
	var made exception
	w.says(&made, 200, "POST", "/admin/v1/bans", `{"domain":"d","entries":[{"key":"user","value":"::ffff:192.0.2.9/120"}],"expires":"2h"}`)
	if made.Subject != "d:user:192.0.2.0/24" || made.Entries[0].Value != "192.0.2.0/24" || !made.InEffect || made.Why != nil {
		t.Errorf("set %+v", made)
	}
	var look struct{ Ban *exception }
	w.says(&look, 200, "GET", "/admin/v1/subject?domain=d&entry=user:192.0.2.7", "")
	if look.Ban == nil || look.Ban.ID != made.ID {
		t.Errorf("a subject of the network: %+v", look)
	}
	w.use("domain: d\ndescriptors:\n- {key: name, limits: [3/1h]}\n")
	var all struct{ Bans []exception }
	w.says(&all, 200, "GET", "/admin/v1/bans", "")
	if len(all.Bans) != 1 || all.Bans[0].InEffect || all.Bans[0].Why == nil || !strings.Contains(*all.Bans[0].Why, "the keys are: name") {
		t.Errorf("without its key: %+v", all)
	}
}

func TestAnOverrideAndAReset(t *testing.T) {
	w := begin(t, one)
	for range 3 {
		w.asks("user", "ann")
	}
	var made exception
	w.says(&made, 200, "POST", "/admin/v1/overrides", `{`+ann+`,"limits":["5/1h","4/1m"],"expires":"7d"}`)
	var look struct {
		Subject  string
		Override *exception
		Ban      *exception
		Limits   []usage
		Rule     struct{ Text string }
		At       *time.Time
		Source   string
	}
	w.says(&look, 200, "GET", "/admin/v1/subject?domain=d&entry=user:ann", "")
	if look.Subject != "d:user:ann" || look.Override == nil || look.Ban != nil || look.Rule.Text != "3/1h by sliding-log" || look.At == nil || look.Source != "store" {
		t.Errorf("%+v", look)
	}
	if l := look.Limits; len(l) != 2 || l[0].Name != "5/1h" || *l[0].Used != 3 || *l[0].Remaining != 2 || *l[1].Remaining != 1 ||
		*l[1].ReleaseAfter <= 0 || time.Duration(*l[1].ReleaseAfter) > time.Minute || time.Duration(l[0].Window) != time.Hour {
		t.Errorf("%+v", l)
	}
	if !w.asks("user", "ann") || w.asks("user", "ann") {
		t.Error("it does not count what was charged under the rule")
	}
	w.says(&struct{}{}, 200, "POST", "/admin/v1/reset", `{`+ann+`}`)
	for call := range 4 {
		if !w.asks("user", "ann") {
			t.Errorf("call %d after the reset is refused", call)
		}
	}
	if w.asks("user", "ann") {
		t.Error("the override was reset too")
	}
}

func TestWrongRequests(t *testing.T) {
	w := begin(t, one)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		say                string
	}{
		"an expiry that is missing": {"POST", "bans", `{` + eve + `}`, 400, "expires is missing"},
		"an expiry that is none":    {"POST", "bans", `{` + eve + `,"expires":"soon"}`, 400, "such as"},
		"limits of a ban":           {"POST", "bans", `{` + eve + `,"expires":"1h","limits":["1/1m"]}`, 422, "a ban must not have any"},
		"a wrong limit":             {"POST", "overrides", `{` + eve + `,"expires":"1h","limits":["0/1m"]}`, 422, "units must be at least 1"},
		"expired already":           {"POST", "bans", `{` + eve + `,"expires":"-1h"}`, 422, "at least 1s"},
		"an unknown field":          {"POST", "bans", `{` + eve + `,"expire":"1h"}`, 400, `unknown field`},
		"an unknown domain":         {"POST", "bans", `{"domain":"e","entries":[{"key":"user"}],"expires":"1h"}`, 404, "unknown domain"},
		"nobody's charges":          {"POST", "reset", `{"domain":"d","entries":[{"key":"free","value":"x"}]}`, 422, "nothing to forget"},
		"large":                     {"POST", "reset", strings.Repeat(" ", wire.MaxBody+1), 413, "larger than"},
		"a subject without a name":  {"GET", "subject?entry=user:ann", "", 400, "domain is missing"},
		"a subject of nobody":       {"GET", "subject?domain=e&entry=user:ann", "", 404, "unknown domain"},
	} {
		res, text := w.send(c.method, "/admin/v1/"+c.path, c.body)
		if res.StatusCode != c.status || !strings.Contains(text, c.say) || !strings.HasPrefix(text, `{"error":`) {
			t.Errorf("%s: %d %s, want %d %q", name, res.StatusCode, text, c.status, c.say)
		}
	}
	var all struct{ Bans []exception }
	if w.says(&all, 200, "GET", "/admin/v1/bans", ""); len(all.Bans) > 0 {
		t.Errorf("exceptions were made: %+v", all)
	}
}

// The state of the store is answered as JSON and as metrics for Prometheus.
func TestStore(t *testing.T) {
	w := begin(t, one)
	_, text := w.send("GET", "/admin/v1/state", "")
	if want := `"store":{"address":null,"bans":0,"cause":null,"error":null,"exceptions_current":true,"for":null,"in_flight":0,"instances":1,` +
		`"local":{"backlog":0,"doubtful":0,"lost":0,"written":0},"overrides":0,"reason":null,"since":null,"status":"ok","store":"memory","uncounted":0}`; !strings.Contains(text, want) {
		t.Errorf("in memory: %s", text)
	}
	_, text = w.send("GET", "/metrics", "")
	if !strings.Contains(text, "\nsash_store_up 1\n") || strings.Contains(text, "sash_store_calls") || !strings.Contains(text, `sash_exceptions{kind="ban"} 0`) {
		t.Error("in memory:", grep(text, "sash_"))
	}
	w.options.Stats, w.options.Store = stats.New(nil), func() degrade.Report {
		return degrade.Report{
			Health:  degrade.Health{Status: "degraded", Store: "probing", Cause: "budget", Instances: 3},
			Address: "redis.example:6379", Err: errors.New("read tcp: i/o timeout"), Uncounted: 1240,
			Since:  time.Now().Add(-time.Minute),
			Stats:  failover.Stats{InFlight: 2, Backlog: 4, Written: 5, Lost: 6, Doubtful: 7},
			Memory: &memstore.Stats{Keys: 8, Bytes: 10, Evicted: 9},
			Home:   &degrade.HomeStats{Up: true, Calls: 3},
		}
	}
	w.handler = New(w.decider, w.options)
	type state struct {
		Status, Store, Cause, Address, Reason string
		Error                                 *string
		Uncounted                             int
		For                                   float64
		Since                                 *time.Time
		InFlight                              int `json:"in_flight"`
		Local                                 struct{ Backlog, Written, Lost, Doubtful int }
		Memory                                struct{ Subjects, Bytes int }
	}
	var now struct{ Store state }
	w.says(&now, 200, "GET", "/admin/v1/state", "")
	answer := now.Store
	if answer.Status != "degraded" || answer.Cause != "budget" || answer.Since == nil || answer.For < 60 || answer.InFlight != 2 || answer.Local.Lost != 6 ||
		answer.Memory.Subjects != 8 || answer.Memory.Bytes != 10 {
		t.Errorf("%+v", answer)
	}
	if answer.Address != "redis.example:6379" || answer.Reason != "does not answer in time" || answer.Uncounted != 1240 || *answer.Error != "read tcp: i/o timeout" {
		t.Errorf("%+v", answer)
	}
	if _, text := w.send("GET", "/admin/v1/state", "", "Authorization: none"); !strings.Contains(text, `"error":null`) ||
		!strings.Contains(text, `"home":{"address":"","calls":3,"failed":0,"leased":0,"state":"up"}`) {
		t.Errorf("strangers read %s", text)
	}
	_, text = w.send("GET", "/metrics", "")
	for _, want := range []string{
		"sash_store_up 0", "sash_home_up 1", "sash_home_calls_total 3", "sash_leased_units_total 0",
		"sash_instances 3", "sash_memory_subjects 8", "sash_memory_bytes 10", "sash_memory_evicted_total 9",
		"sash_store_calls_in_flight 2", "sash_local_backlog_subjects 4", "sash_local_units_written_total 5", "sash_local_units_lost_total 6", "sash_local_units_doubtful_total 7",
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%q is not in %s", want, grep(text, "sash_"))
		}
	}
}

func grep(text, word string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// Errors without a status of their own are hidden from the client, and logged.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	w := begin(t, one)
	h := &handler{decider: w.decider, Options: w.options}
	w.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h.refuse(rw, r, errors.New("dial tcp 10.0.0.1: refused"))
	})
	res, text := w.send("GET", "/", "")
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || strings.Contains(text, "10.0.0.1") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// A blocked subject says until when, and not what is used.
func TestABlockedSubject(t *testing.T) {
	w := begin(t, one)
	w.use("domain: d\ndescriptors: [{key: user, limits: [1/1m, 3/1h], block: {refusals: 2, for: 10m}}]\n")
	for range 3 {
		w.asks("user", "ann")
	}
	var l struct {
		At     time.Time
		Until  *time.Time `json:"blocked_until"`
		Limits []usage
	}
	w.says(&l, 200, "GET", "/admin/v1/subject?domain=d&entry=user:ann", "")
	if left := time.Until(*l.Until); left > 10*time.Minute || left < 9*time.Minute {
		t.Fatalf("blocked for %v", left)
	}
	for _, u := range l.Limits { // the first is full for less than the block, and the second has units left
		if *u.Remaining != 0 || u.Used != nil || time.Duration(*u.ReleaseAfter) != l.Until.Sub(l.At) {
			t.Errorf("%+v", u)
		}
	}
}

// A home that decides beside own shares has 800 of 1,000 units, so 800 remain of a subject without a charge.
func TestWhatIsUsedBesideOwnSharesIsNotKnown(t *testing.T) {
	for _, regions := range []int{0, 2} {
		used := (&handler{}).usage(&decide.State{Answer: decide.Answer{
			Rule:   &config.Rule{Place: config.Place{Global: true, Own: config.OwnShare{Regions: regions}}},
			Limits: []sash.LimitResult{{Limit: sash.Every(1000, time.Minute), Remaining: 800}},
		}})[0].Used
		if (used == nil) != (regions > 0) || used != nil && *used != 200 {
			t.Errorf("with own shares of %d regions: %v", regions, used)
		}
	}
}

// The state has counts and the store, and subjects only for callers with the token.
func TestTheStateHidesSubjectsWithoutAccess(t *testing.T) {
	w := begin(t, one)
	for range 4 {
		w.asks("user", "ann")
	}
	type state struct {
		Authenticated bool
		Requests      stats.Series
		Rules         []stats.Series
		Store         struct{ Store string }
		Top           *struct{ Units, Refused []stats.Subject }
	}
	var now state
	w.says(&now, http.StatusOK, "GET", "/admin/v1/state", "")
	if !now.Authenticated || len(now.Top.Units) != 1 || now.Top.Units[0].Subject != "d:user:ann" || now.Top.Units[0].Count != 4 ||
		len(now.Top.Refused) != 1 || now.Top.Refused[0].Count != 1 {
		t.Errorf("the busiest are %+v", now.Top)
	}
	now, w.token = state{}, ""
	w.says(&now, http.StatusOK, "GET", "/admin/v1/state", "")
	if now.Requests.Count != (stats.Counts{Allowed: 3, Refused: 1}) || len(now.Rules) != 1 || now.Rules[0].Rule != "d.user" || now.Store.Store != "memory" {
		t.Errorf("without access: %+v", now)
	}
	if now.Authenticated || now.Top != nil {
		t.Errorf("subjects without access: %+v", now.Top)
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
		t.Errorf("/ does not name the dashboard: %s", text)
	}
}
