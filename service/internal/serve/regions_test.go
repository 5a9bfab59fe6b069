package serve

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// A rule without the right home is an error at the start. With it the home decides, and the log warns of the trip.
func TestAGlobalRuleNeedsItsHome(t *testing.T) {
	redis := redistest.Start(t).Addr()
	path := file(t, "domain: d\ndescriptors:\n- {key: k, limits: [\"1000/10m\"], scope: global}\n")
	for want, opts := range map[string]Options{
		"rules.yaml:3: d / k: scope: global needs the home": {},
		"give --redis too": {Home: redis},
	} {
		opts.Variables, opts.Log = at(path), slog.New(slog.DiscardHandler)
		if err := Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	var log servertest.Log
	path = file(t, "domain: d\ndescriptors:\n- {key: k, limits: [9/day@UTC], scope: global}\n")
	here := running(t, Options{
		Variables: at(path), Redis: redis, Home: redis, HomeBudget: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if got, said := send(t, http.MethodPost, here.HTTP, "/v1/allow", `{"domain":"d","entries":[{"key":"k"}],"cost":9}`); got != want {
			t.Errorf("%d %s, want %d", got, said, want)
		}
	}
	if !strings.Contains(log.String(), "takes a trip to the home") {
		t.Errorf("logs: %s", log.String())
	}
}
