package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/wire"
)

// A Region is one sash serve of a region.
type Region struct {
	Name string
	URL  string // of its HTTP port
}

// regionTimeout is longer than a service takes to answer, with its trips to the home.
const regionTimeout = 5 * time.Second

// maxAnswer is longer than any answer of a service.
const maxAnswer = 1 << 20

// asker asks services over HTTP.
type asker struct {
	client *http.Client
	token  string
}

func newAsker(token string, callers int) *asker {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, callers
	return &asker{&http.Client{Transport: transport, Timeout: regionTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, token}
}

// An ask is the body of a request.
type ask struct {
	Domain  string  `json:"domain"`
	Entries []entry `json:"entries"`
	Cost    int64   `json:"cost,omitempty"`
}

type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// post asks a region at /v1/allow or /v1/peek. An error is that there is no decision.
func (a *asker) post(ctx context.Context, r Region, path string, what ask) (d wire.Decision, err error) {
	body, err := json.Marshal(what)
	if err != nil {
		return d, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(r.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return d, err
	}
	req.Header.Set("Content-Type", "application/json")
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	res, err := a.client.Do(req)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return d, wrapped.Err // without the URL, which the caller names
	}
	if err != nil {
		return d, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return d, err
	}
	var said struct {
		wire.Decision
		Error string `json:"error"`
	}
	err = json.Unmarshal(text, &said)
	switch {
	case err == nil && said.Error != "":
		return d, fmt.Errorf("%s (status %d)", said.Error, res.StatusCode)
	case err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests:
		return d, fmt.Errorf("it answers %s to %s: is this the HTTP port of sash serve?", res.Status, path)
	}
	return said.Decision, nil
}

// look returns the limits that a region has for a subject, or why they cannot be judged over regions.
func (a *asker) look(ctx context.Context, r Region, what ask) ([]wire.Limit, error) {
	d, err := a.post(ctx, r, "/v1/peek", what)
	switch {
	case err != nil:
		return nil, err
	case len(d.Limits) == 0 && d.Source != nil && *d.Source == sash.FromPolicy.String():
		return nil, fmt.Errorf("its stores do not answer (cause %s)", d.Cause)
	case len(d.Limits) == 0:
		return nil, fmt.Errorf("no rule of the domain %s limits these entries there", what.Domain)
	case d.Shadow:
		return nil, errors.New("the rule is in shadow mode: it refuses nothing")
	case d.Scope != "global":
		return nil, errors.New("the rule has no scope: global, so each region has the limit for itself; sash verify --redis checks the Redis of a region")
	}
	for i := range d.Limits {
		if d.Limits[i].Window == 0 {
			return nil, fmt.Errorf("%s is a calendar limit: only windows that slide are judged over regions", d.Limits[i].Name)
		}
		d.Limits[i].Remaining = nil
	}
	return d.Limits, nil
}

// limits returns the limits of a subject, which must be the same in all regions.
func (a *asker) limits(ctx context.Context, regions []Region, what ask) ([]wire.Limit, error) {
	var all []wire.Limit
	for i, r := range regions {
		limits, err := a.look(ctx, r, what)
		if err != nil {
			return nil, fmt.Errorf("region %s at %s: %w", r.Name, r.URL, err)
		}
		if i > 0 && !slices.Equal(limits, all) {
			return nil, fmt.Errorf("region %s has the limits %s, and region %s has %s: every region needs the same rules",
				regions[0].Name, names(all), r.Name, names(limits))
		}
		all = limits
	}
	return all, nil
}

func names(limits []wire.Limit) string {
	var all []string
	for _, l := range limits {
		all = append(all, l.Name)
	}
	return strings.Join(all, ", ")
}

// latencies counts calls by how long they took, in steps of a hundredth.
type latencies map[int]int

const step = 1.01

func (l latencies) add(d time.Duration) {
	l[int(math.Log(float64(max(1, d)))/math.Log(step))]++
}

// percentile returns the time that a part of the calls did not exceed, to a hundredth. It is 0 without calls.
func (l latencies) percentile(part float64) time.Duration {
	var steps []int
	calls := 0
	for at, n := range l {
		steps = append(steps, at)
		calls += n
	}
	slices.Sort(steps)
	rest := part * float64(calls)
	for _, at := range steps {
		if rest -= float64(l[at]); rest <= 0 {
			return time.Duration(math.Pow(step, float64(at)+.5))
		}
	}
	return 0
}
