package decide

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
)

// The memory of a subject on Redis is what docs/envoy.md has in a table, within a tenth: MEMORY USAGE after 4,500 calls
// under 10,000 an hour, evenly over an hour of the server's clock, and at once.
func TestTheMemoryOfASubjectIsAsDocumented(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	rules := []string{"", "algorithm: sliding-buckets, resolution: 1s", "algorithm: sliding-buckets, resolution: 10s",
		"algorithm: sliding-buckets, resolution: 1m", "algorithm: fixed-window"}
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i, rule := range rules {
		fmt.Fprintf(&text, "- {key: k%d, rate_limit: {unit: hour, requests_per_unit: 10000}, %s}\n", i, rule)
	}
	d := deciderOn(t, text.String(), goredisstore.New(client, nil))
	ask := func(rule int, subject string) {
		entries := []config.Entry{{Key: fmt.Sprint("k", rule), Value: subject}}
		if answers, err := d.Decide(t.Context(), One("d", entries, nil)); err != nil || !answers[0].Allowed() {
			t.Fatal(answers, err)
		}
	}
	size := func(rule int, subject string) float64 {
		keys := client.Keys(t.Context(), fmt.Sprintf("*k%d:%s", rule, subject)).Val()
		if len(keys) != 1 {
			t.Fatalf("keys %q", keys)
		}
		return float64(client.MemoryUsage(t.Context(), keys[0], 0).Val())
	}
	const calls = 4500
	for range calls {
		ask(0, "burst")
	}
	began := time.Now()
	for n := range calls {
		if n%50 == 0 {
			clock.Move(t, -time.Since(began)) // a machine that takes its time fills no further steps
		}
		for i := 1; i < len(rules); i++ {
			ask(i, "burst")
		}
	}
	burst := make([]float64, len(rules)) // before those charges leave the window
	for i := range rules {
		burst[i] = size(i, "burst")
	}
	for n := range calls {
		clock.Move(t, time.Duration(n)*time.Hour/calls)
		for i := range rules {
			ask(i, "evenly")
		}
	}
	page, err := os.ReadFile("../../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, rule := range rules {
		named := "the default"
		if rule != "" {
			named = "`" + rule + "`"
		}
		evenly := size(i, "evenly")
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(named) + ` \| ([0-9,]+) \| ([0-9,]+) \|`).FindSubmatch(page)
		if row == nil {
			t.Errorf("docs/envoy.md has no row for %s: %v bytes evenly, %v at once", named, evenly, burst[i])
			continue
		}
		for j, got := range []float64{evenly, burst[i]} {
			documented, err := strconv.ParseFloat(strings.ReplaceAll(string(row[j+1]), ",", ""), 64)
			if err != nil || math.Abs(got-documented) > got/10 {
				t.Errorf("%s: %v bytes, %s are documented", named, got, row[j+1])
			}
		}
	}
}
