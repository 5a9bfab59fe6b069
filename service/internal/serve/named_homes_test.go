package serve

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/servertest"
)

const namedRules = `
domain: d
descriptors:
- {key: eu, limits: ["1000/10m"], scope: global, lease: 2s, home: eu}
- {key: us, limits: ["1000/10m"], scope: global, lease: 2s, home: us}
`

// betweenHomes starts a service in a region of several homes.
func betweenHomes(t *testing.T, homes config.Homes) Listening {
	t.Helper()
	at, stop := start(t, Options{
		Config: config.Source{Path: rulesIn(t, namedRules)}, Redis: redistest.Start(t).Addr(), Homes: homes,
		Budget: time.Second, HomeBudget: time.Second, Admin: "127.0.0.1:0",
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// subjects returns the keys of a rule on a server.
func subjects(t *testing.T, server *redistest.Server, key string) []any {
	t.Helper()
	return server.Must(t, "KEYS", "*"+key+"*").([]any)
}

// A rule is decided by the home that it names, over all regions. A home that stops does not touch the rules of another.
func TestARuleIsDecidedByTheHomeThatItNames(t *testing.T) {
	eu, us := redistest.Start(t), redistest.Start(t)
	homes := config.Homes{"eu": eu.Addr(), "us": us.Addr()}
	here, there := betweenHomes(t, homes), betweenHomes(t, homes)
	call(t, here, "us")
	admitted, leased := spendAll(t, quota/2, "eu", here)
	if admitted < quota/2 || leased == 0 {
		t.Errorf("%d admitted of %d, %d from leases", admitted, quota/2, leased)
	}
	for server, want := range map[*redistest.Server][2]int{eu: {1, 0}, us: {0, 1}} {
		if ofEU, ofUS := subjects(t, server, "eu"), subjects(t, server, "us"); len(ofEU) != want[0] || len(ofUS) != want[1] {
			t.Errorf("a home has %v and %v, want %d keys", ofEU, ofUS, want)
		}
	}
	us.Stop()
	servertest.Wait(t, "the home us answers", func() bool {
		h := health(t, here)
		return h.Home == "down" && h.Status == "degraded"
	})
	rest, _ := spendAll(t, quota-admitted, "eu", here, there)
	if admitted+rest != quota {
		t.Errorf("over both regions %d and %d are admitted of %d", admitted, rest, quota)
	}
	if d := call(t, there, "us"); d.status != http.StatusServiceUnavailable {
		t.Errorf("a rule of the home that is away: %+v", d)
	}
	text := get(t, here, "/admin/v1/store")
	for _, want := range []string{`"homes":[{"name":"eu","state":"up","address":"` + eu.Addr(), `{"name":"us","state":"down","address":"` + us.Addr()} {
		if !strings.Contains(text, want) {
			t.Errorf("%s has no %s", text, want)
		}
	}
	text = get(t, here, "/metrics")
	for _, want := range []string{`sash_home_up{home="eu"} 1`, `sash_home_up{home="us"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
}

// A rule without the right home is an error at the start, with the names that there are.
func TestWrongHomesAreErrors(t *testing.T) {
	redis := redistest.Start(t).Addr()
	two := config.Homes{"eu": redis, "us": redis}
	for name, test := range map[string]struct {
		rule  string
		homes config.Homes
		want  string
	}{
		"none named":                 {"scope: global", two, "rules.yaml:3: d / k: scope: global, and there are several homes: add home: with one of eu, us"},
		"another name":               {"scope: global, home: ap", two, "rules.yaml:3: d / k: home: ap is no home of --home: use one of eu, us"},
		"the only home has no name":  {"scope: global, home: eu", config.Homes{"": redis}, "give --home eu=URL"},
		"a home, and none is global": {"home: eu", two, "give scope: global beside it"},
	} {
		path := rulesIn(t, "domain: d\ndescriptors:\n- {key: k, limits: [\"1000/10m\"], "+test.rule+"}\n")
		err := Run(t.Context(), Options{
			Config: config.Source{Path: path}, Redis: redis, Homes: test.homes, Log: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
