// Package admin is the service's port for those who run it: what it counts, the configuration in use, and
// profiles of the process. It has no authentication, and belongs on loopback or a private network.
package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/stats"
)

// Loading is how the configuration was last read. It is safe for concurrent use.
type Loading struct {
	last atomic.Pointer[attempt]
}

type attempt struct {
	at  time.Time
	err error
}

// Note notes the outcome of reading the configuration; nil is a success.
func (l *Loading) Note(err error) { l.last.Store(&attempt{time.Now(), err}) }

// New returns a handler with /rlconfig, /stats, /metrics and /debug/pprof/.
func New(decider *decide.Decider, counted *stats.Registry, loading *Loading) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(counted.Prometheus, promhttp.HandlerOpts{Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		plain(w)
		_ = counted.WriteText(w) // a client that is gone is no concern of ours
	})
	mux.HandleFunc("GET /rlconfig", func(w http.ResponseWriter, _ *http.Request) {
		plain(w)
		if last := loading.last.Load(); last != nil && last.err != nil {
			fmt.Fprintf(w, "# Not in use, because of %s: %v\n# In use is what was read before:\n", last.at.UTC().Format(time.RFC3339), last.err)
		}
		_ = decider.Config().Dump(w)
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		plain(w)
		fmt.Fprint(w, "/rlconfig      the configuration in use, and what is wrong with the one on disk\n"+
			"/stats         counters, as text\n/metrics       counters, for Prometheus\n/debug/pprof/  profiles of the process\n")
	})
	return mux
}

func plain(w http.ResponseWriter) { w.Header().Set("Content-Type", "text/plain; charset=utf-8") }
