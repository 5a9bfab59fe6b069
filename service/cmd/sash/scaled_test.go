package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/logs"
	"example.com/sash/service/internal/replay"
	"example.com/sash/service/internal/replay/accesslog"
)

// A hit is a request of the log, and the service's answer.
type hit struct {
	client string
	at     time.Time     // in the log
	due    time.Duration // after the start, scaled
	answer answer
}

// hours reads the first hours of the log with requests, each in time order. Clients of different hours count as
// different, so that the hours can be sent side by side.
func hours(t *testing.T, most int) [][]*hit {
	t.Helper()
	text, err := os.ReadFile(wholeLog)
	if err != nil {
		t.Logf("the whole log is absent (%v): using the sample", err)
		if text, err = os.ReadFile(sampleLog); err != nil {
			t.Fatal(err)
		}
	}
	byHour := make(map[time.Time][]*hit)
	_, err = accesslog.Read(t.Context(), "log", strings.NewReader(string(text)), nil, func(r *accesslog.Record) error {
		at := time.UnixMicro(r.Time).UTC()
		hour := at.Truncate(time.Hour)
		byHour[hour] = append(byHour[hour], &hit{client: hour.Format("02T15-") + r.RemoteAddress, at: at})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all [][]*hit
	for _, hits := range byHour {
		slices.SortStableFunc(hits, func(a, b *hit) int { return a.at.Compare(b.at) })
		all = append(all, hits)
	}
	slices.SortFunc(all, func(a, b []*hit) int { return a[0].at.Compare(b[0].at) })
	return all[:min(most, len(all))]
}

// byClient groups hits, each client's in their order.
func byClient(all [][]*hit) map[string][]*hit {
	clients := make(map[string][]*hit)
	for _, hits := range all {
		for _, h := range hits {
			clients[h.client] = append(clients[h.client], h)
		}
	}
	return clients
}

// verdicts replays hits at the times that when returns, and returns the verdicts of each client.
func verdicts(t *testing.T, clients map[string][]*hit, limits string, when func(*hit) time.Time) map[string][]bool {
	t.Helper()
	var b replay.Builder
	for name, hits := range clients {
		for _, h := range hits {
			b.Add(when(h).UnixMicro(), replay.Selection{Key: name, Cost: 1})
		}
	}
	parsed, err := replay.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	trace, all := b.Trace(), make(map[string][]bool)
	for name := range clients {
		moments, err := trace.Timeline(context.Background(), replay.Candidate{Limits: parsed}, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range moments {
			all[name] = append(all[name], m.Allowed)
		}
	}
	return all
}

// A service on Redis decides the log, sent twenty times as fast with windows of a twentieth of the length, as replay does.
// At the instants of the service's decisions all verdicts are equal. Against a replay of the log as written, a client's
// verdicts first differ where a request is so close to the end of a window that latency, which is not scaled, decides.
func TestAServiceDecidesTheRealLogAsReplayDoes(t *testing.T) {
	const (
		faster         = 20
		limits, scaled = "5/10s,10/1m", "5/500ms,10/3s"
	)
	windows := []time.Duration{500 * time.Millisecond, 3 * time.Second}
	all := hours(t, 6)
	file := filepath.Join(t.TempDir(), "scaled.yaml")
	put(t, file, "domain: demo\ndescriptors:\n- key: remote_address\n  limits: ["+scaled+"]\n")
	p := serve(t, "--config", file, "--budget", "10s", "--redis", redistest.Start(t).Addr())

	begin := time.Now().Add(50 * time.Millisecond)
	send(t, p.url, all, begin, faster)

	clients := byClient(all)
	requests, refused, limited := 0, 0, 0
	early, late := time.Hour, -time.Hour
	for name, want := range verdicts(t, clients, scaled, func(h *hit) time.Time { return h.answer.At }) {
		some := 0
		inOrder := slices.Clone(clients[name]) // a refusal from memory may have a slightly earlier time than the refusal it repeats
		slices.SortStableFunc(inOrder, func(a, b *hit) int { return a.answer.At.Compare(b.answer.At) })
		for i, h := range inOrder {
			if h.answer.Allowed != want[i] {
				t.Errorf("%s, request %d at %v: the service said %v, and replay %v", name, i, h.answer.At, h.answer.Allowed, want[i])
			}
			requests++
			if !h.answer.Allowed {
				some++
			}
			delay := h.answer.At.Sub(begin.Add(h.due))
			early, late = min(early, delay), max(late, delay)
		}
		refused += some
		if some > 0 {
			limited++
		}
	}
	if refused == 0 || refused == requests {
		t.Errorf("%d of %d requests were refused", refused, requests)
	}

	// The command returns the same for a log with these instants.
	log := filepath.Join(t.TempDir(), "answers.csv")
	var text strings.Builder
	text.WriteString("time,remote_address\n")
	for _, hits := range clients {
		for _, h := range hits {
			_, _ = fmt.Fprintf(&text, "%s,%s\n", h.answer.At.UTC().Format("2006-01-02T15:04:05.000000Z"), h.client)
		}
	}
	put(t, log, text.String())
	var said struct {
		Requests   int
		Candidates []struct {
			Refused int
			Limited int `json:"clients_limited"`
		}
	}
	var out, failed strings.Builder
	code := logs.Run(t.Context(), []string{"replay", "--try", scaled, "--json", log}, strings.NewReader(""), &out, &failed, os.Getenv)
	if err := json.Unmarshal([]byte(out.String()), &said); err != nil || code != 0 {
		t.Fatal(code, failed.String(), err)
	}
	if said.Requests != requests || said.Candidates[0].Refused != refused || said.Candidates[0].Limited != limited {
		t.Errorf("sash-logs replay says %+v, and the service refused %d of %d, of %d clients", said, refused, requests, limited)
	}

	// Compare with the log as written.
	slack := late - early
	same := 0
	for name, want := range verdicts(t, clients, limits, func(h *hit) time.Time { return h.at }) {
		hits := clients[name]
		first := slices.IndexFunc(hits, func(h *hit) bool { return h.answer.Allowed != want[slices.Index(hits, h)] })
		if first < 0 {
			same += len(hits)
			continue
		}
		same += first
		near := slices.ContainsFunc(hits[:first], func(h *hit) bool {
			apart := hits[first].due - h.due
			return h.answer.Allowed && slices.ContainsFunc(windows, func(w time.Duration) bool { return (apart - w).Abs() <= slack })
		})
		if !near {
			t.Errorf("%s, request %d: the service said %v, replay of the log as written %v, and no admitted request is within %v of the end of a window",
				name, first, hits[first].answer.Allowed, want[first], slack)
		}
	}
	t.Logf("%d requests, %d refused, as by replay at the same instants; %d as by the log as written until a client's first difference, with a slack of %v",
		requests, refused, same, slack)
}

// send sends each hour's requests at their scaled instants, one after the other.
func send(t *testing.T, url string, all [][]*hit, begin time.Time, faster time.Duration) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(all)}, Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	failed := make([]error, len(all))
	var group sync.WaitGroup
	for i, hits := range all {
		group.Go(func() {
			minute := hits[0].at.Truncate(time.Minute)
			for _, h := range hits {
				h.due = h.at.Sub(minute) / faster
				time.Sleep(time.Until(begin.Add(h.due))) // a service on Redis has no clock that a test can move
				if h.answer, failed[i] = ask(client, url, h.client); failed[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	for _, err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
}
