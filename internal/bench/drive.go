package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/RussellLuo/slidingwindow"
	"golang.org/x/time/rate"
)

// drivers are limiters in the memory of this process, which only the scoreboard has.
var drivers = []opener{
	{"x/time/rate", func(_ string, w workload) decide {
		return perKey(func() func() bool {
			return rate.NewLimiter(rate.Limit(float64(w.units)/w.window.Seconds()), int(w.units)).Allow
		})
	}},
	{"slidingwindow", func(_ string, w workload) decide {
		return perKey(func() func() bool {
			l, _ := slidingwindow.NewLimiter(w.window, w.units, func() (slidingwindow.Window, slidingwindow.StopFunc) { return slidingwindow.NewLocalWindow() })
			return l.Allow
		})
	}},
}

func perKey(limiter func() func() bool) decide {
	all := map[string]func() bool{}
	return func(_ context.Context, key string) (bool, error) {
		if all[key] == nil {
			all[key] = limiter()
		}
		return all[key](), nil
	}
}

// drive calls a limiter of 20 in 2 s and writes the history, for sash verify. Each line of the load has the time of a call,
// in seconds since the epoch, and a key.
func drive(ctx context.Context, name, address string, load io.Reader, history io.Writer) {
	all := append(slices.Clone(openers), drivers...)
	i := slices.IndexFunc(all, func(o opener) bool { return o.name == name })
	if i < 0 {
		check(fmt.Errorf("there is no limiter %q", name))
	}
	decide := all[i].open(address, workload{units: 20, window: 2 * time.Second})
	_, _ = decide(ctx, "warm-up") // connects
	now := func() float64 { return float64(time.Now().UnixNano()) / 1e9 }
	lines := bufio.NewScanner(load)
	for lines.Scan() {
		var at float64
		var key string
		_, err := fmt.Sscan(lines.Text(), &at, &key)
		check(err, "the load has "+lines.Text())
		time.Sleep(time.Duration((at - now()) * 1e9))
		call := map[string]any{"key": key, "sent": now()}
		if admitted, err := decide(ctx, key); err == nil {
			call["admitted"] = admitted
		}
		call["received"] = now()
		check(json.NewEncoder(history).Encode(call))
	}
	check(lines.Err())
}
