// Package servertest has the helpers that tests of the service share.
package servertest

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

// A Watched is a primary with a replica, and the Sentinels that watch both. The Sentinels fail over a primary
// that does not answer for half a second.
type Watched struct {
	Primary, Replica *redistest.Server
	Sentinels        *redistest.Sentinels
}

// StartWatched starts a primary, a replica and three Sentinels.
func StartWatched(t testing.TB) *Watched {
	t.Helper()
	w := &Watched{Primary: redistest.Start(t)}
	w.Replica = redistest.StartReplica(t, w.Primary.Addr())
	w.Sentinels = redistest.StartSentinels(t, w.Primary, 1, 500*time.Millisecond)
	return w
}

// URL returns the URL of the primary as found through its Sentinels.
func (w *Watched) URL() string {
	return "redis+sentinel://" + strings.Join(w.Sentinels.Addrs(), ",") + "/" + w.Sentinels.Name
}

// StartCluster starts three primaries with a replica each, and returns the URL. A primary that does not answer
// for a second is failed over.
func StartCluster(t testing.TB) (*redistest.Cluster, string) {
	t.Helper()
	c := redistest.StartCluster(t, redistest.ClusterOptions{Replicas: 1, Args: func(int) []string {
		return []string{"--repl-ping-replica-period", "1"} // a replica soon shows what was replicated
	}})
	var addrs []string
	for _, s := range c.Primaries {
		addrs = append(addrs, s.Addr())
	}
	return c, "redis+cluster://" + strings.Join(addrs, ",")
}

// NoLeak checks at the end of a package's tests that no goroutine is left. It ignores goroutines of rueidis that refresh a
// cluster's nodes or close replaced connections. They sleep for five seconds at most, even after their client is closed.
func NoLeak(m *testing.M) {
	const cluster = "github.com/redis/rueidis.(*clusterClient)."
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction(cluster+"_refresh.func2"),
		goleak.IgnoreAnyFunction(cluster+"redirectOrNew.func1"))
}

// Decider returns a decider with the rules of a configuration and one store.
func Decider(t testing.TB, store driver.Store, rules string) *decide.Decider {
	t.Helper()
	cfg := Must(config.Parse(config.Defaults{}, false, config.File{Name: "rules.yaml", Text: []byte(rules)}))(t)
	return Must(decide.New(cfg, func(config.Place) (driver.Store, error) { return store, nil }))(t)
}

// Gate returns a gate configured by the text of a file.
func Gate(t testing.TB, text string) *access.Gate {
	t.Helper()
	file := filepath.Join(t.TempDir(), "access.yaml")
	Check(t, os.WriteFile(file, []byte(text), 0o600))
	return Must(access.Open(file, &access.Options{Log: slog.New(slog.DiscardHandler)}))(t)
}

// Check fails the test at once after an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Must returns a function that returns the value, or fails the test at once after an error: Must(os.Open(name))(t).
func Must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Check(t, err)
		return value
	}
}

// Wait waits until a condition holds, and fails the test after 30 seconds.
func Wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("after 30 seconds: %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// A Log is the output of a logger, which tests may read while it is written. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write appends a line.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines is the output of a logger as a channel of lines.
type Lines chan string

// Write sends a line.
func (l Lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
