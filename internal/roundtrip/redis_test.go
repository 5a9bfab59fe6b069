package roundtrip

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/judge"
	"example.com/sash/internal/redistest"
	"example.com/sash/outgoing"
)

// Servers in two processes hold one limit: whichever of them a request reaches, the admissions on the store's
// clock keep to it in every trailing window, and no request was refused that had room.
func TestServersInTwoProcessesHoldOneLimit(t *testing.T) {
	limits := []sash.Limit{sash.Every(20, 100*time.Millisecond), sash.Every(60, 500*time.Millisecond)}
	i := instance{Addr: redistest.Start(t).Addr(), Limits: limits}
	urls := []string{i.start(t), i.start(t)}
	var (
		mu       sync.Mutex
		admitted = make([][]judge.Call, len(urls))
		refused  []judge.Call
		group    sync.WaitGroup
	)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: 10 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	end := time.Now().Add(1600 * time.Millisecond)
	for caller := range 4 * len(urls) {
		group.Go(func() {
			for time.Now().Before(end) {
				status, at, err := decided(t.Context(), client, urls[caller%len(urls)])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if a := (judge.Call{At: at, Cost: 1}); status == http.StatusOK {
					admitted[caller%len(urls)] = append(admitted[caller%len(urls)], a)
				} else {
					refused = append(refused, a)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	all := append(admitted[0], admitted[1]...)
	if err := judge.CheckHistory(limits, all); err != nil {
		t.Error(err)
	}
	if err := judge.CheckRefusals(limits, all, refused); err != nil {
		t.Error(err)
	}
	// 60 fit into each half second; the machine may be too busy to ask for all of them.
	if len(all) < 120 || len(admitted[0]) == 0 || len(admitted[1]) == 0 || len(refused) == 0 {
		t.Errorf("admitted %d and %d, refused %d", len(admitted[0]), len(admitted[1]), len(refused))
	}
	t.Logf("admitted %d and %d, refused %d", len(admitted[0]), len(admitted[1]), len(refused))
}

// decided returns the status of an answer, and when the store decided.
func decided(ctx context.Context, client *http.Client, url string) (int, time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, time.Time{}, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer res.Body.Close()
	at, err := strconv.ParseInt(res.Header.Get(atField), 10, 64)
	if err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
		return 0, time.Time{}, fmt.Errorf("status %d, decided at %q", res.StatusCode, res.Header.Get(atField))
	}
	return res.StatusCode, time.UnixMicro(at), nil
}

// The round trip over a network, with both sides on a real Redis and in real time.
func TestOnRedisAClientIsNotRefused(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store := goredisstore.New(client, nil)
	handler, err := limitedHandler(store, []sash.Limit{sash.PerSecond(20)})
	if err != nil {
		t.Fatal(err)
	}
	refused, ok := 0, 0
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	transport, err := outgoing.New(store, outgoing.Everything("api"), nil, sash.PerSecond(200))
	if err != nil {
		t.Fatal(err)
	}
	caller := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	began := time.Now()
	for range 60 { // three seconds' worth, of which the first is free
		status, _, err := decided(t.Context(), caller, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusOK {
			ok++
		} else {
			refused++
		}
	}
	if took := time.Since(began); refused > 0 || took > 6*time.Second {
		t.Errorf("%d served and %d refused in %v", ok, refused, took)
	}
}
