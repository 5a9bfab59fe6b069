package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
)

// The whole access log lies beside the repository, and a sample of it inside.
const (
	wholeLog  = "../../../../shared/data/apache_access.log"
	sampleLog = "../../testdata/access_log_sample.log"
)

// addresses returns the client address of every line of the log.
func addresses(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(wholeLog)
	if err != nil {
		t.Logf("the whole log is absent (%v): using the sample", err)
		if text, err = os.ReadFile(sampleLog); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		address, _, _ := strings.Cut(line, " ")
		all = append(all, address)
	}
	return all
}

// An answer is the service's answer in its documented form.
type answer struct {
	Allowed    bool        `json:"allowed"`
	Remaining  int64       `json:"remaining"`
	RetryAfter json.Number `json:"retry_after"`
	ResetAfter json.Number `json:"reset_after"`
	RefusedBy  *string     `json:"refused_by"`
	Limits     []struct {
		Name      string      `json:"name"`
		Units     int64       `json:"units"`
		Window    json.Number `json:"window"`
		Remaining int64       `json:"remaining"`
	} `json:"limits"`
	At     time.Time `json:"at"`
	Source string    `json:"source"`

	status     int
	retryField string
}

func ask(client *http.Client, url, address string) (answer, error) {
	body := fmt.Sprintf(`{"domain":"demo","entries":[{"key":"remote_address","value":%q}],"cost":1}`, address)
	res, err := client.Post(url+"/v1/allow", "application/json", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, retryField: res.Header.Get("Retry-After")}
	if err := json.Unmarshal(text.Bytes(), &a); err != nil {
		return a, fmt.Errorf("%w in %d %s", err, res.StatusCode, text.Bytes())
	}
	return a, nil
}

// replayAll sends all addresses as fast as it can. One worker sends all requests of an address, so the answers are in
// the order in which the store decided.
func replayAll(t *testing.T, url string, all []string) map[string][]answer {
	t.Helper()
	const workers = 4
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	got := make([]map[string][]answer, workers)
	failed := make([]error, workers)
	var group sync.WaitGroup
	for w := range workers {
		got[w] = make(map[string][]answer)
		group.Go(func() {
			for _, address := range all {
				hash := fnv.New32a()
				_, _ = hash.Write([]byte(address))
				if int(hash.Sum32()%workers) != w {
					continue
				}
				a, err := ask(client, url, address)
				if err != nil {
					failed[w] = err
					return
				}
				got[w][address] = append(got[w][address], a)
			}
		})
	}
	group.Wait()
	answers := make(map[string][]answer)
	for w := range workers {
		if failed[w] != nil {
			t.Fatal(failed[w])
		}
		for address, list := range got[w] {
			answers[address] = list
		}
	}
	return answers
}

// A rule is one limit of the model: at most n units in (t - window, t], for every t.
type rule struct {
	name   string
	n      int64
	window time.Duration
}

func (r rule) used(past []time.Time, t time.Time) int64 {
	var n int64
	for _, at := range past {
		if at.After(t.Add(-r.window)) && !at.After(t) {
			n++
		}
	}
	return n
}

// fits is the definition: one more unit at t, over all limits.
func fits(rules []rule, past []time.Time, t time.Time) bool {
	for _, r := range rules {
		if r.used(past, t)+1 > r.n {
			return false
		}
	}
	return true
}

// retry returns the smallest d for which one unit fits at t + d. Use only falls when a unit leaves.
func retry(rules []rule, past []time.Time, t time.Time) time.Duration {
	releases := []time.Duration{0}
	for _, r := range rules {
		for _, at := range past {
			if d := at.Add(r.window).Sub(t); d > 0 {
				releases = append(releases, d)
			}
		}
	}
	slices.Sort(releases)
	for _, d := range releases {
		if fits(rules, past, t.Add(d)) {
			return d
		}
	}
	return -1
}

// compare checks every answer of one address against the definition, at the times at which the store
// decided, and returns how many were refused.
func compare(t *testing.T, address string, rules []rule, answers []answer) (refused int) {
	t.Helper()
	var past []time.Time
	for i, a := range answers {
		allowed := fits(rules, past, a.At)
		wait := retry(rules, past, a.At)
		status, by := http.StatusOK, ""
		if allowed {
			past = append(past, a.At)
		} else {
			refused++
			status = http.StatusTooManyRequests
			var longest time.Duration
			for _, r := range rules {
				if alone := retry([]rule{r}, past, a.At); alone > longest {
					longest, by = alone, r.name
				}
			}
		}
		least := rules[0].n
		var reset time.Duration
		for j, r := range rules {
			left := r.n - r.used(past, a.At)
			least = min(least, left)
			for _, at := range past {
				reset = max(reset, at.Add(r.window).Sub(a.At))
			}
			if a.Source == "cache" && a.Limits[j].Remaining < left { // units that left the window since the refusal are not counted
				a.Limits[j].Remaining = left
			}
			if l := a.Limits[j]; l.Remaining != left || l.Name != r.name || l.Units != r.n || l.Window.String() != decimal(r.window) {
				t.Errorf("%s, call %d: limit %+v, want %d left of %+v", address, i+1, l, left, r)
			}
		}
		said := ""
		if a.RefusedBy != nil {
			said = *a.RefusedBy
		}
		field := ""
		if !allowed {
			field = strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
		}
		if a.status != status || a.Allowed != allowed || a.Remaining != least || a.RetryAfter.String() != decimal(wait) ||
			a.ResetAfter.String() != decimal(reset) || said != by || a.retryField != field {
			t.Errorf("%s, call %d at %v: %+v\n\twant allowed %v, remaining %d, retry_after %s, reset_after %s, refused by %q",
				address, i+1, a.At, a, allowed, least, decimal(wait), decimal(reset), by)
		}
		if t.Failed() {
			return refused
		}
	}
	return refused
}

// decimal returns seconds without trailing zeros.
func decimal(d time.Duration) string {
	s := fmt.Sprintf("%d.%06d", d/time.Second, d%time.Second/time.Microsecond)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func TestEveryVerdictOnARealLogIsTheModels(t *testing.T) {
	example := []rule{{"10/1m", 10, time.Minute}, {"60/1h", 60, time.Hour}}
	// Windows so short that many calls leave them while the log is sent.
	short := []rule{{"2/20ms", 2, 20 * time.Millisecond}, {"5/300ms", 5, 300 * time.Millisecond}}
	shortFile := filepath.Join(t.TempDir(), "short.yaml")
	text := "domain: demo\ndescriptors:\n- key: remote_address\n  limits: [\"2/20ms\", \"5/300ms\"]\n"
	put(t, shortFile, text)
	for _, tt := range []struct {
		name  string
		rules []rule
		args  func(*testing.T) []string
	}{
		{"the example, in memory", example, func(*testing.T) []string { return nil }},
		{"the example, on Redis", example, func(t *testing.T) []string { return []string{"--budget", "10s", "--redis", redistest.Start(t).Addr()} }},
		{"short windows, in memory", short, func(*testing.T) []string { return []string{"--config", shortFile} }},
		{"short windows, on Redis", short, func(t *testing.T) []string {
			return []string{"--budget", "10s", "--config", shortFile, "--redis", "redis://" + redistest.Start(t).Addr() + "/1"}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := addresses(t)
			p := serve(t, tt.args(t)...)
			answers := replayAll(t, p.url, all)
			calls, refused := 0, 0
			for address, list := range answers {
				calls += len(list)
				refused += compare(t, address, tt.rules, list)
			}
			if calls != len(all) || refused == 0 || refused == calls {
				t.Errorf("%d calls of %d, %d refused", calls, len(all), refused)
			}
			t.Logf("%d calls from %d addresses: %d refused, as by the model", calls, len(answers), refused)
		})
	}
}
