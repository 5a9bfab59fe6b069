package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	library "example.com/sash"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
)

// The whole access log lies beside the repository, and a sample of it inside.
const (
	wholeLog  = "../../../../shared/data/apache_access.log"
	sampleLog = "../../testdata/access_log_sample.log"
)

// realLog returns the name of the log that is there.
func realLog(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(wholeLog); err != nil {
		t.Logf("the whole log is absent (%v): using the sample", err)
		return sampleLog
	}
	return wholeLog
}

// ask requests a unit for an address. The answer's status and Retry-After have to agree with its body.
func ask(client *http.Client, url, address string) (judge.Call, error) {
	body := fmt.Sprintf(`{"domain":"demo","entries":[{"key":"remote_address","value":%q}]}`, address)
	res, err := client.Post(url+"/v1/allow", "application/json", strings.NewReader(body))
	if err != nil {
		return judge.Call{}, err
	}
	defer func() { _ = res.Body.Close() }()
	var a struct {
		Allowed    bool
		RetryAfter json.Number `json:"retry_after"`
		At         time.Time
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return judge.Call{}, err
	}
	wait, err := time.ParseDuration(a.RetryAfter.String() + "s")
	status, field := http.StatusOK, ""
	if !a.Allowed {
		status, field = http.StatusTooManyRequests, strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10)
	}
	if err == nil && (res.StatusCode != status || res.Header.Get("Retry-After") != field) {
		err = fmt.Errorf("%s, Retry-After %q: %+v", res.Status, res.Header.Get("Retry-After"), a)
	}
	return judge.Call{At: a.At, Cost: 1, Refused: !a.Allowed, Wait: wait}, err
}

// sendLog sends the addresses of the log as fast as it can. One worker sends all requests of an address, so the answers
// are in the order in which the store decided.
func sendLog(t *testing.T, url string) map[string][]judge.Call {
	t.Helper()
	const workers = 4
	text := readFile(t, realLog(t))
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	var got [workers]map[string][]judge.Call
	var failed [workers]error
	var group sync.WaitGroup
	for w := range workers {
		got[w] = make(map[string][]judge.Call)
		group.Go(func() {
			for line := range strings.Lines(string(text)) {
				address, _, _ := strings.Cut(line, " ")
				hash := fnv.New32a()
				_, _ = hash.Write([]byte(address))
				if int(hash.Sum32()%workers) != w {
					continue
				}
				call, err := ask(client, url, address)
				if err != nil {
					failed[w] = err
					return
				}
				got[w][address] = append(got[w][address], call)
			}
		})
	}
	group.Wait()
	for w := range workers {
		if failed[w] != nil {
			t.Fatal(failed[w])
		}
		maps.Copy(got[0], got[w])
	}
	return got[0]
}

func TestEveryVerdictOnARealLogIsTheModels(t *testing.T) {
	example := []library.Limit{library.Every(10, time.Minute), library.Every(60, time.Hour)}
	// Windows so short that many calls leave them while the log is sent.
	short := []library.Limit{library.Every(2, 20*time.Millisecond), library.Every(5, 300*time.Millisecond)}
	file := tempFile(t, "short.yaml", "domain: demo\ndescriptors:\n- {key: remote_address, limits: [2/20ms, 5/300ms]}\n")
	redis := redistest.Start(t).Addr()
	for name, tt := range map[string]struct {
		limits []library.Limit
		args   []string
	}{
		"the example, in memory":   {example, nil},
		"the example, on Redis":    {example, []string{"--budget", "10s", "--redis", redis}},
		"short windows, in memory": {short, []string{"--config", file}},
		"short windows, on Redis":  {short, []string{"--config", file, "--budget", "10s", "--redis", "redis://" + redis + "/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			calls, refused := 0, 0
			for address, answers := range sendLog(t, serve(t, tt.args...).url) {
				for _, call := range answers {
					calls++
					if call.Refused {
						refused++
					}
				}
				history := judge.History{Limits: tt.limits, Calls: answers}
				if f := history.Check(); !f.Kept() {
					t.Errorf("%s: %+v", address, f)
				}
			}
			if refused == 0 || refused == calls {
				t.Errorf("%d of %d calls refused", refused, calls)
			}
			t.Logf("%d of %d calls refused, as by the definition", refused, calls)
		})
	}
}
