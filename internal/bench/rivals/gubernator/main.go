//go:build ignore

// Command main is the program of gubernator, by the protocol of the package above. It runs a node of gubernator, which
// keeps its counters in its own memory, and asks it over gRPC as its users do. The addresses of Redis and of sash serve
// are not used. It is built in a module of its own, so that what gubernator requires changes no version of this repository.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailgun/gubernator/v2"
	"github.com/sirupsen/logrus"
)

const module = "github.com/mailgun/gubernator/v2"

// algorithms are the contenders: a token bucket here is a window that begins with its first call.
var algorithms = map[string]gubernator.Algorithm{
	"gubernator in memory, token bucket": gubernator.Algorithm_TOKEN_BUCKET,
	"gubernator in memory, leaky bucket": gubernator.Algorithm_LEAKY_BUCKET,
}

type request struct {
	Op, Contender, Key, Prefix string
	Keys, Callers              int
	Units                      int64
	WindowMS                   int64 `json:"window_ms"`
	ForMS                      int64 `json:"for_ms"`
}

func main() {
	client, stop, err := start()
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	out := json.NewEncoder(os.Stdout)
	var contenders []any
	for _, name := range slices.Sorted(maps.Keys(algorithms)) {
		contenders = append(contenders, map[string]string{"name": name, "version": version()})
	}
	_ = out.Encode(map[string]any{"runtime": runtime.Version(), "contenders": contenders})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var r request
		err := json.Unmarshal(in.Bytes(), &r)
		answer := map[string]any{}
		if err == nil {
			answer, err = serve(client, r)
		}
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		_ = out.Encode(answer)
	}
}

// version returns the version of gubernator that this program is built with.
func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == module {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return "?"
}

// start starts a node that has no peers but itself, as gubernator's command does, and dials it.
func start() (client gubernator.V1Client, stop func(), err error) {
	free, err := net.Listen("tcp", "127.0.0.1:0") // a node compares its address with its peers', so it must know it
	if err != nil {
		return nil, nil, err
	}
	address := free.Addr().String()
	_ = free.Close()
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	node, err := gubernator.SpawnDaemon(context.Background(), gubernator.DaemonConfig{
		GRPCListenAddress: address, HTTPListenAddress: "127.0.0.1:0", PeerDiscoveryType: "none", Logger: quiet,
	})
	if err != nil {
		return nil, nil, err
	}
	node.SetPeers([]gubernator.PeerInfo{{GRPCAddress: address}})
	client, err = gubernator.DialV1Server(address, nil)
	return client, node.Close, err
}

func serve(client gubernator.V1Client, r request) (map[string]any, error) {
	algorithm, ok := algorithms[r.Contender]
	if !ok {
		return nil, fmt.Errorf("there is no contender %q", r.Contender)
	}
	name := fmt.Sprintf("%s, %d/%dms", r.Contender, r.Units, r.WindowMS) // keys of two limits count apart
	decide := func(key string) (bool, error) {
		res, err := client.GetRateLimits(context.Background(), &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{{
			Name: name, UniqueKey: key, Hits: 1, Limit: r.Units, Duration: r.WindowMS, Algorithm: algorithm,
		}}})
		if err != nil {
			return false, err
		}
		if message := res.Responses[0].Error; message != "" {
			return false, errors.New(message)
		}
		return res.Responses[0].Status == gubernator.Status_UNDER_LIMIT, nil
	}
	switch r.Op {
	case "ask":
		allowed, err := decide(r.Key)
		return map[string]any{"allowed": allowed}, err
	case "load":
		return load(decide, r), nil
	}
	return nil, fmt.Errorf("there is no operation %q", r.Op)
}

// load makes decisions from several goroutines for a time.
func load(decide func(key string) (bool, error), r request) map[string]any {
	names := make([]string, r.Keys)
	for i := range names {
		names[i] = fmt.Sprintf("%s:%d", r.Prefix, i)
	}
	var mu sync.Mutex // guards times, admitted and failed
	var times []time.Duration
	var admitted, failed int
	var group sync.WaitGroup
	start := make(chan struct{})
	for range r.Callers {
		group.Go(func() {
			var own []time.Duration
			yes, no := 0, 0
			<-start
			now := time.Now() // on a busy machine, a goroutine may start late
			for end := now.Add(time.Duration(r.ForMS) * time.Millisecond); now.Before(end); {
				allowed, err := decide(names[rand.IntN(len(names))])
				after := time.Now()
				own = append(own, after.Sub(now))
				now = after
				if err != nil {
					no++
				} else if allowed {
					yes++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			times, admitted, failed = append(times, own...), admitted+yes, failed+no
		})
	}
	began := time.Now()
	close(start)
	group.Wait()
	took := time.Since(began)
	slices.Sort(times)
	at := func(percent int) float64 { return float64(times[len(times)*percent/100].Nanoseconds()) / 1e3 }
	return map[string]any{
		"decisions": len(times) - failed, "admitted": admitted, "errors": failed,
		"ms": float64(took.Microseconds()) / 1e3, "p50_us": at(50), "p99_us": at(99),
	}
}
