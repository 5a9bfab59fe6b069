//go:build !sashserver

package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/verify"
	"example.com/sash/service/internal/wire"
)

// tokenVariable is the environment variable with the token of a client of sash serve --access.
const tokenVariable = "SASH_TOKEN"

// ruling is the flags of sash verify that name regions, and the rule to check in them.
type ruling struct {
	regions            []string
	domain, descriptor string
}

func (r *ruling) register(f *pflag.FlagSet) {
	f.StringSliceVar(&r.regions, "regions", nil, "check one limit over several regions: `NAME=URL,…`, the HTTP port of a sash serve in each")
	f.StringVar(&r.domain, "domain", "", "with --regions: the domain of the rule")
	f.StringVar(&r.descriptor, "descriptor", "", "with --regions: the entries of the rule, `KEY[=VALUE],…`; one without a value gets values of its own")
}

// check returns what is wrong with flags that do not belong together.
func (r *ruling) check(cmd *cobra.Command) error {
	if len(r.regions) > 0 {
		for _, flag := range []string{"redis", "algorithm"} {
			if cmd.Flags().Changed(flag) {
				return fmt.Errorf("--%s: with --regions it has no effect; the services know their Redis and their rules", flag)
			}
		}
		return nil
	}
	for _, flag := range []string{"regions", "domain", "descriptor"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s: give --regions NAME=URL,NAME=URL too, such as eu=http://10.0.0.7:8080", flag)
		}
	}
	return nil
}

// options reads the flags.
func (r *ruling) options(opts verify.Options, token string) (out verify.RegionsOptions, err error) {
	out = verify.RegionsOptions{Domain: r.domain, For: opts.For, Seed: opts.Seed, Workers: opts.Workers, Token: token}
	if out.Regions, err = regionsOf(r.regions); err != nil {
		return out, err
	}
	if r.domain == "" || r.descriptor == "" {
		return out, errors.New("--regions: give --domain and --descriptor, which name the rule to check, such as --domain shop --descriptor user")
	}
	subject := wire.Subject{Domain: r.domain}
	for _, text := range strings.Split(r.descriptor, ",") {
		key, value, given := strings.Cut(text, "=")
		if given && strings.TrimSpace(value) == "" {
			return out, fmt.Errorf("--descriptor: the value of %q is empty: leave the = out too, and the check has values of its own", key)
		}
		subject.Entries = append(subject.Entries, config.Entry{Key: key, Value: value})
	}
	if err := subject.Check(); err != nil {
		return out, fmt.Errorf("--descriptor: %w", err)
	}
	if opts.Workers < len(out.Regions) {
		return out, fmt.Errorf("--workers %d: give one for each of the %d regions at least", opts.Workers, len(out.Regions))
	}
	out.Entries = subject.Entries
	return out, nil
}

func regionsOf(texts []string) (all []verify.Region, err error) {
	for _, text := range texts {
		name, at, _ := strings.Cut(text, "=")
		to, err := url.Parse(at)
		if err != nil || name == "" || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
			return nil, fmt.Errorf("--regions %q: give NAME=URL, such as eu=http://10.0.0.7:8080", text)
		}
		if to.User != nil {
			return nil, fmt.Errorf("--regions: the URL of %s has a user: the token of a client comes from $%s", name, tokenVariable)
		}
		for _, other := range all {
			if other.Name == name {
				return nil, fmt.Errorf("--regions: two regions are called %s", name)
			}
			if strings.TrimSuffix(other.URL, "/") == strings.TrimSuffix(at, "/") {
				return nil, fmt.Errorf("--regions: %s and %s have the same URL, %s", other.Name, name, at)
			}
		}
		all = append(all, verify.Region{Name: name, URL: at})
	}
	if len(all) < 2 {
		return nil, errors.New("--regions: give at least two: one region is checked by sash verify --redis")
	}
	return all, nil
}

func (a *app) verifyRegions(ctx context.Context, v *verifying) error {
	opts, err := v.ruling.options(v.opts, a.env(tokenVariable))
	if err != nil {
		return err
	}
	report, ended := verify.RunRegions(ctx, opts)
	if report == nil || ended != nil && !report.Answered() {
		return fmt.Errorf("%w; nothing was judged (seed %d)", ended, v.opts.Seed)
	}
	err = a.print(v.json, regionsAnswer(v, report, ended), func(t *text) { regionsText(t, v, report, ended) })
	switch {
	case err != nil:
		return err
	case ended != nil && v.json:
		return errPartial
	case ended != nil:
		return ended
	case report.Over() != nil:
		return errFound
	}
	return nil
}

func regionsText(t *text, v *verifying, r *verify.RegionsReport, ended error) {
	over := r.Over()
	switch {
	case over != nil:
		t.say("violated: %d units over all regions in the %v that end at %s, and the limit is %s: %d more",
			over.Fullest, time.Duration(over.Window), stamp(over.Ends), over.Name, over.Fullest-over.Units)
		for i, units := range over.ByRegion {
			t.say("  %d of them in %s", units, r.Regions[i].Name)
		}
		if r.Uncounted > 0 {
			t.say("  %d calls were admitted by on_unavailable, without a store that counts", r.Uncounted)
		}
	case ended != nil:
		t.say("not judged: %v", ended)
	default:
		t.say("kept: no window held more than its limit over all regions")
	}
	rows := t.table(0)
	fmt.Fprintln(rows, "  limit\tunits in the worst window\tcalls refused\t")
	for _, l := range r.Limits {
		note := ""
		if l.Refused == 0 {
			note = "which shows nothing: it was not reached"
		}
		fmt.Fprintf(rows, "  %s\t%d of %d\t%d\t%s\n", l.Name, l.Fullest, l.Units, l.Refused, note)
	}
	_ = rows.Flush() // its writer keeps the error
	rows = t.table(0)
	fmt.Fprintln(rows, "  region\tadmitted\tunits\tfrom leases\trefused\tno answer\tp50\tp99\t")
	for _, g := range r.Regions {
		fmt.Fprintf(rows, "  %s\t%d\t%d\t%d\t%d\t%d\t%v\t%v\t\n", g.Name, g.Admitted, g.Units, g.Leased, g.Refused, g.Unanswered, brief(g.P50), brief(g.P99))
	}
	_ = rows.Flush()
	t.say("  %s, %d workers, seed %d, %v", count(int64(r.Keys), "key"), v.opts.Workers, v.opts.Seed, r.Took.Round(time.Millisecond))
}

// brief rounds a time of a call for people.
func brief(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// regionsJSON is the JSON of sash verify --regions.
type regionsJSON struct {
	Verdict   string       `json:"verdict"` // kept, violated or not judged
	Seed      uint64       `json:"seed"`
	Workers   int          `json:"workers"`
	Seconds   float64      `json:"seconds"`
	Keys      int          `json:"keys"`
	Uncounted int          `json:"uncounted"`
	Limits    []worstJSON  `json:"limits"`
	Regions   []regionJSON `json:"regions"`
	Error     string       `json:"error,omitempty"` // why there is no verdict
}

// worstJSON is a limit with its worst window over all regions.
type worstJSON struct {
	Limit    string           `json:"limit"`
	Most     int64            `json:"most"`    // units that the window may hold
	Units    int64            `json:"units"`   // that it held
	Refused  int              `json:"refused"` // calls that had no room in it; 0 if it was not reached
	ByRegion map[string]int64 `json:"by_region"`
	Ends     string           `json:"ends,omitempty"`
}

type regionJSON struct {
	Name       string       `json:"name"`
	URL        string       `json:"url"`
	Admitted   int          `json:"admitted"`
	Units      int64        `json:"units"`
	Leased     int          `json:"leased"`
	Refused    int          `json:"refused"`
	Unanswered int          `json:"unanswered"`
	P50        wire.Seconds `json:"p50"`
	P99        wire.Seconds `json:"p99"`
	LastError  string       `json:"last_error,omitempty"`
}

func regionsAnswer(v *verifying, r *verify.RegionsReport, ended error) regionsJSON {
	out := regionsJSON{
		Verdict: "kept", Seed: v.opts.Seed, Workers: v.opts.Workers, Seconds: r.Took.Seconds(), Keys: r.Keys, Uncounted: r.Uncounted,
	}
	switch {
	case r.Over() != nil:
		out.Verdict = "violated"
	case ended != nil:
		out.Verdict, out.Error = "not judged", ended.Error()
	}
	for _, l := range r.Limits {
		row := worstJSON{Limit: l.Name, Most: l.Units, Units: l.Fullest, Refused: l.Refused, ByRegion: make(map[string]int64)}
		for i, units := range l.ByRegion {
			row.ByRegion[r.Regions[i].Name] = units
		}
		if l.Fullest > 0 {
			row.Ends = instantText(l.Ends)
		}
		out.Limits = append(out.Limits, row)
	}
	for _, g := range r.Regions {
		row := regionJSON{
			Name: g.Name, URL: g.URL, Admitted: g.Admitted, Units: g.Units, Leased: g.Leased, Refused: g.Refused, Unanswered: g.Unanswered,
			P50: wire.Seconds(g.P50), P99: wire.Seconds(g.P99),
		}
		if g.LastError != nil {
			row.LastError = g.LastError.Error()
		}
		out.Regions = append(out.Regions, row)
	}
	return out
}
