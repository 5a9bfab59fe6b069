package verify

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/wire"
)

// A faked answers as the sash serve of a region. The zero value needs a limiter.
type faked struct {
	limiter *sash.Limiter
	asked   func()               // before it decides
	decided func()               // before it answers
	change  func(*wire.Decision) // changes the answer
	status  int                  // answered instead, with an error
	token   string               // that a client needs
}

func limiterOf(t *testing.T, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	l, err := sash.New(memstore.New(nil), nil, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (p *faked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var what ask
	if err := json.NewDecoder(r.Body).Decode(&what); err != nil || p.token != "" && r.Header.Get("Authorization") != "Bearer "+p.token {
		wire.Fail(w, http.StatusUnauthorized, "the token is wrong")
		return
	}
	peek := r.URL.Path == "/v1/peek"
	if p.status != 0 && (!peek || p.status == http.StatusNotFound) {
		wire.Fail(w, p.status, "the service has said this")
		return
	}
	if p.asked != nil && !peek {
		p.asked()
	}
	key := what.Entries[len(what.Entries)-1].Value
	decide := func() (sash.Result, error) { return p.limiter.AllowN(r.Context(), key, what.Cost) }
	if peek {
		decide = func() (sash.Result, error) { return p.limiter.Peek(r.Context(), key) }
	}
	res, err := decide()
	if err != nil {
		wire.Fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	d := wire.ResultOf(res)
	d.Scope = "global"
	if p.change != nil {
		p.change(&d)
	}
	if p.decided != nil && !peek {
		p.decided()
	}
	status := http.StatusOK
	if !d.Allowed {
		status = http.StatusTooManyRequests
	}
	wire.Write(w, status, d)
}

// over checks the bound over services.
func over(t *testing.T, opts RegionsOptions, services ...*faked) (*RegionsReport, error) {
	t.Helper()
	for i, p := range services {
		s := httptest.NewServer(p)
		t.Cleanup(s.Close)
		opts.Regions = append(opts.Regions, Region{Name: []string{"eu", "us", "ap"}[i], URL: s.URL})
	}
	opts.Domain, opts.Workers, opts.Seed = "shop", 3*len(services), 7
	if opts.Entries == nil {
		opts.Entries = []config.Entry{{Key: "user"}}
	}
	if opts.For == 0 {
		opts.For = time.Second
	}
	return RunRegions(t.Context(), opts)
}

func TestRegionsThatShareALimitKeepIt(t *testing.T) {
	t.Parallel()
	shared := limiterOf(t, sash.Every(3, 200*time.Millisecond), sash.Every(5, time.Second))
	r, err := over(t, RegionsOptions{Token: "secret"}, &faked{limiter: shared, token: "secret"}, &faked{limiter: shared}, &faked{limiter: shared})
	if err != nil || r.Over() != nil || len(r.Limits) != 2 {
		t.Fatalf("%v: %+v", err, r)
	}
	for _, l := range r.Limits {
		if l.Fullest == 0 || l.Fullest > l.Units {
			t.Errorf("%d units in the worst window of %s", l.Fullest, l.Name)
		}
	}
	admitted, refused := 0, 0
	for _, g := range r.Regions {
		if g.Units != int64(g.Admitted) || g.P50 == 0 || g.P99 < g.P50 { // of a limit that is so small, calls ask for a unit each
			t.Errorf("%+v", g)
		}
		admitted, refused = admitted+g.Admitted, refused+g.Refused
	}
	if admitted < 5 || refused == 0 || refused != r.Limits[0].Refused+r.Limits[1].Refused {
		t.Errorf("%d calls admitted, %d refused: %+v", admitted, refused, r.Limits)
	}
}

// The window of a minute does not pass: each region admits all of its own limit.
func TestALimitInEachRegionIsFound(t *testing.T) {
	t.Parallel()
	limit := sash.Every(4, time.Minute)
	before := time.Now()
	r, err := over(t, RegionsOptions{For: 3 * time.Second}, &faked{limiter: limiterOf(t, limit)}, &faked{limiter: limiterOf(t, limit)}, &faked{limiter: limiterOf(t, limit)})
	if err != nil || r.Over() == nil {
		t.Fatalf("%v: %+v", err, r)
	}
	l := r.Over()
	if l.Fullest != 12 || l.ByRegion[0] != 4 || l.ByRegion[1] != 4 || l.ByRegion[2] != 4 {
		t.Errorf("%d units, by region %v", l.Fullest, l.ByRegion)
	}
	if l.Ends.Before(before) || l.Ends.After(time.Now()) {
		t.Errorf("the window ends at %v", l.Ends)
	}
}

// gate lets callers pass together, at the ends of steps of 250 ms.
func gate() {
	time.Sleep(time.Until(time.Now().Truncate(250 * time.Millisecond).Add(250 * time.Millisecond)))
}

// Many calls that arrive at one instant, or are answered at one, were not admitted at one.
func TestSlowWaysAreNoViolation(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]faked{"to the region": {asked: gate}, "back": {decided: gate}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow.limiter = limiterOf(t, sash.Every(3, 100*time.Millisecond))
			if name == "to the region" { // and is decided later than the other calls
				slow.limiter = limiterOf(t, sash.Every(3, 600*time.Millisecond))
			}
			r, err := over(t, RegionsOptions{For: 2 * time.Second}, &slow, &faked{limiter: slow.limiter})
			if r == nil || r.Over() != nil {
				t.Errorf("%v: %+v", err, r)
			}
		})
	}
}

func TestWhatCannotBeJudgedIsAnError(t *testing.T) {
	t.Parallel()
	limit := sash.Every(20, time.Minute)
	shared := limiterOf(t, limit)
	fine := func() *faked { return &faked{limiter: shared} }
	name := func(change func(*wire.Decision)) *faked { return &faked{limiter: shared, change: change} }
	for what, c := range map[string]struct {
		service *faked
		say     string
	}{
		"a rule that one region does not know":   {name(func(d *wire.Decision) { d.Limits = nil; d.Source = nil }), "region us at http://127.0.0.1:.*no rule of the domain shop"},
		"a domain that one region does not know": {&faked{limiter: shared, status: http.StatusNotFound}, "region us .*the service has said this"},
		"a rule of each region":                  {name(func(d *wire.Decision) { d.Scope = "" }), "region us .*no scope: global"},
		"a rule in shadow mode":                  {name(func(d *wire.Decision) { d.Shadow = true }), "shadow mode"},
		"a limit by the calendar":                {name(func(d *wire.Decision) { d.Limits[0].Window = 0 }), "20/1m is a calendar limit"},
		"other limits":                           {&faked{limiter: limiterOf(t, sash.Every(30, time.Minute))}, "region eu has the limits 20/1m, and region us has 30/1m"},
		"stores that do not answer":              {name(func(d *wire.Decision) { p := "policy"; d.Limits, d.Source, d.Cause = nil, &p, "down" }), `cause down`},
		"a caller without the token":             {&faked{limiter: shared, token: "secret"}, "the token is wrong"},
		"a region that answers no call":          {&faked{limiter: shared, status: http.StatusServiceUnavailable}, "region us .*answered no call.*the service has said this"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := over(t, RegionsOptions{}, fine(), c.service)
			if err == nil || !regexp.MustCompile(c.say).MatchString(err.Error()) {
				t.Errorf("%v; want %q", err, c.say)
			}
		})
	}
	t.Run("a limit that is not reached", func(t *testing.T) {
		t.Parallel()
		roomy, slowly := limiterOf(t, sash.Every(100_000, time.Minute)), func() { time.Sleep(20 * time.Millisecond) }
		_, err := over(t, RegionsOptions{}, &faked{limiter: roomy, asked: slowly}, &faked{limiter: roomy, asked: slowly})
		if err == nil || !strings.Contains(err.Error(), "no call was refused") {
			t.Error(err)
		}
	})
	t.Run("a region that is not there", func(t *testing.T) {
		t.Parallel()
		gone := httptest.NewServer(fine())
		gone.Close()
		_, err := over(t, RegionsOptions{Regions: []Region{{"gone", gone.URL}}}, fine())
		if err == nil || !strings.Contains(err.Error(), "region gone at "+gone.URL+": ") || !strings.Contains(err.Error(), "refused") {
			t.Error(err)
		}
	})
}

// A machine that stood still counts less time than has passed, so that windows look fuller than they were.
func TestAMachineThatSleptShowsNoViolation(t *testing.T) {
	g := &tour{limits: []wire.Limit{{Units: 1, Window: wire.Seconds(time.Second)}}, keys: 1}
	g.callers = []*caller{{spans: [keys][]span{{{0, 1, 1, 0}, {2, 3, 1, 0}}}}}
	report := func() *RegionsReport {
		return &RegionsReport{Limits: []LimitReport{{Limit: g.limits[0]}}, Regions: make([]RegionReport, 1)}
	}
	r := report()
	if err := g.judge(r, []latencies{{}}); err != nil || r.Over() == nil {
		t.Errorf("%v: %+v", err, r)
	}
	g.slept = time.Second
	if r = report(); !errors.Is(g.judge(r, []latencies{{}}), ErrSlept) || r.Over() != nil {
		t.Errorf("%+v", r)
	}
}

// A subject that somebody else has is one subject, whatever turns the regions take.
func TestASubjectThatIsNamedIsOne(t *testing.T) {
	t.Parallel()
	limit := sash.Every(4, time.Minute)
	r, err := over(t, RegionsOptions{Entries: []config.Entry{{Key: "user", Value: "42"}}}, &faked{limiter: limiterOf(t, limit)}, &faked{limiter: limiterOf(t, limit)})
	if err != nil || r.Keys != 1 || r.Over() == nil || r.Over().Fullest != 8 {
		t.Errorf("%v: %+v", err, r)
	}
}
