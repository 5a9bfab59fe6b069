package goredisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
)

// BenchmarkRegion reports what a call costs the Redis of a region, which spends it from a lease, and the Redis at home, which
// decides it: the time of the script and of the whole server, bytes received and sent, and the memory of a key that has a
// lease, and of one that only has demand.
func BenchmarkRegion(b *testing.B) {
	server := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaintNotificationsConfig: quiet})
	defer client.Close()
	store := goredisstore.New(client, nil)
	b.Run("spend", func(b *testing.B) {
		spend := func(key string) driver.Held {
			held, err := store.Spend(b.Context(), driver.Spending{Key: key, Cost: 1, Longest: 60_000_000})
			if err != nil {
				b.Fatal(err)
			}
			return held
		}
		client.FlushAll(b.Context())
		var held driver.Held
		for held.Errand == 0 {
			held = spend("user:42")
		}
		kept, err := store.Bring(b.Context(), driver.Errand{
			Key: "user:42", Longest: 60_000_000, Began: held.At, Units: driver.MaxUnits / 2, Rest: 0, Note: fmt.Sprintf("%48d", 0),
		})
		if err != nil || !kept {
			b.Fatalf("the lease is kept: %v, %v", kept, err)
		}
		report(b, client, func() {
			if !spend("user:42").Spent {
				b.Fatal("the lease is used up or over: use a smaller -benchtime")
			}
		})
		leased := client.Keys(b.Context(), "*").Val()[0]
		b.ReportMetric(float64(client.MemoryUsage(b.Context(), leased).Val()), "B/leased-key")
		client.FlushAll(b.Context())
		spend("user:42")
		b.ReportMetric(float64(client.MemoryUsage(b.Context(), leased).Val()), "B/quiet-key")
	})
	b.Run("decide", func(b *testing.B) {
		limiter := newLimiter(b, store, nil, sash.PerHour(1000))
		n := 0
		report(b, client, func() {
			n++
			if _, err := limiter.Allow(b.Context(), "user:"+strconv.Itoa(n%1000)); err != nil {
				b.Fatal(err)
			}
		})
	})
}

// report makes calls and reports what each costs the server.
func report(b *testing.B, client *redis.Client, call func()) {
	number := func(section, name string) float64 {
		m := regexp.MustCompile(name + `([0-9.]+)`).FindStringSubmatch(client.Info(b.Context(), section).Val())
		if m == nil {
			b.Fatalf("Redis reports no %s", name)
		}
		value, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		return value
	}
	names := []string{"used_cpu_sys:", "used_cpu_user:", "total_net_input_bytes:", "total_net_output_bytes:"}
	sections := []string{"cpu", "cpu", "stats", "stats"}
	call() // Redis gets the script
	client.ConfigResetStat(b.Context())
	var before [4]float64
	for i := range names {
		before[i] = number(sections[i], names[i])
	}
	for b.Loop() {
		call()
	}
	var used [4]float64
	for i := range names {
		used[i] = (number(sections[i], names[i]) - before[i]) / float64(b.N)
	}
	b.ReportMetric(number("commandstats", "cmdstat_evalsha:.*usec_per_call="), "script-µs/op")
	b.ReportMetric(1e6*(used[0]+used[1]), "server-µs/op")
	b.ReportMetric(used[2], "B-in/op")
	b.ReportMetric(used[3], "B-out/op")
}
