package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/RussellLuo/slidingwindow"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// drivers are limiters that only the scoreboard has: in the memory of this process, and any over HTTP or RESP, which get
// what to send behind the address, with {key} in it.
var drivers = []opener{
	{"x/time/rate", func(_ string, w workload) (decide, func(), error) {
		return perKey(func() func() bool {
			return rate.NewLimiter(rate.Limit(float64(w.units)/w.window.Seconds()), int(w.units)).Allow
		})
	}},
	{"slidingwindow", func(_ string, w workload) (decide, func(), error) {
		return perKey(func() func() bool {
			l, _ := slidingwindow.NewLimiter(w.window, w.units, func() (slidingwindow.Window, slidingwindow.StopFunc) { return slidingwindow.NewLocalWindow() })
			return l.Allow
		})
	}},
	{"http", anyHTTP}, {"resp", anyRESP},
}

// perKey makes a limiter for each key.
func perKey(limiter func() func() bool) (decide, func(), error) {
	all := map[string]func() bool{}
	return func(_ context.Context, key string) (bool, error) {
		if all[key] == nil {
			all[key] = limiter()
		}
		return all[key](), nil
	}, func() {}, nil
}

// anyHTTP sends GET, or POST where there is a body. Status 200 is an admission, and 429 a refusal.
func anyHTTP(address string, _ workload) (decide, func(), error) {
	return func(ctx context.Context, key string) (bool, error) {
		url, body, post := strings.Cut(strings.ReplaceAll(address, "{key}", key), " ")
		method := http.MethodGet
		if post {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return false, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		_, _ = io.Copy(io.Discard, res.Body) // the connection is used again
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
			return false, fmt.Errorf("status %s", res.Status)
		}
		return res.StatusCode == http.StatusOK, nil
	}, func() {}, nil
}

// anyRESP sends a command whose reply begins with 0 if the call is admitted, as that of CL.THROTTLE does.
func anyRESP(address string, _ workload) (decide, func(), error) {
	address, command, _ := strings.Cut(address, " ")
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	return func(ctx context.Context, key string) (bool, error) {
		var words []any
		for _, w := range strings.Fields(command) {
			words = append(words, strings.ReplaceAll(w, "{key}", key))
		}
		reply, err := client.Do(ctx, words...).Int64Slice()
		return err == nil && reply[0] == 0, err
	}, func() { _ = client.Close() }, nil
}

// drive writes a history, for sash verify, of a limiter of 20 in 2 s. A line of the load is when to call, in seconds since
// the epoch, and a key.
func drive(ctx context.Context, name, address string, load io.Reader, history io.Writer) error {
	all := append(slices.Clone(openers), drivers...)
	i := slices.IndexFunc(all, func(o opener) bool { return o.name == name })
	if i < 0 {
		return fmt.Errorf("there is no limiter %q", name)
	}
	decide, end, err := all[i].open(address, workload{units: 20, window: 2 * time.Second})
	if err != nil {
		return err
	}
	defer end()
	_, _ = decide(ctx, "warm-up") // connects
	now := func() float64 { return float64(time.Now().UnixNano()) / 1e9 }
	out := json.NewEncoder(history)
	for lines := bufio.NewScanner(load); lines.Scan(); {
		var at float64
		var key string
		if _, err := fmt.Sscan(lines.Text(), &at, &key); err != nil {
			return fmt.Errorf("the load has %q: %w", lines.Text(), err)
		}
		time.Sleep(time.Duration((at - now()) * 1e9))
		call := map[string]any{"key": key, "sent": now()}
		if admitted, err := decide(ctx, key); err == nil {
			call["admitted"] = admitted
		}
		call["received"] = now()
		if err := out.Encode(call); err != nil {
			return err
		}
	}
	return nil
}
