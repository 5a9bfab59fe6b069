package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/internal/redistest"
)

// asked are the requests of testdata/original: how often, the domain and the entries. Those without one are errors.
var asked = []struct {
	times           int
	domain, entries string
}{
	{7, "edge", "user=ann"}, {1, "edge", "plan=gold"}, {2, "edge", "host=a.example"}, {3, "edge", "path=/api/v1"}, {4,
		"edge", "free=x"},
	{3, "edge", "soft=x"}, {1, "edge", "address=192.0.2.7"}, {2, "edge", "address=v1.2"}, {3, "edge", "address=2001:db8::1"},
	{4, "edge", "address="}, {5, "edge", "address=a|b"}, {1, "edge", "tenant=t.7"}, {2, "edge", "tenant="}, {1, "edge",
		"a=1 b=x"},
	{2, "edge", "a=1 b=x c=2"}, {4, "edge", "a=1 b=x d=2"}, {2, "edge", "unknown=x"}, {2, "no-such.domain", "user=ann"},
	{2, "", "user=ann"}, {3, "edge", ""},
}

func askAll(t *testing.T, client pb.RateLimitServiceClient) {
	t.Helper()
	for _, a := range asked {
		req := descriptors(a.domain, a.entries)
		if a.entries == "" {
			req.Descriptors = nil
		}
		for range a.times {
			if _, err := client.ShouldRateLimit(t.Context(), req); (err != nil) != (a.domain == "" || a.entries == "") {
				t.Fatalf("%v: %v", a, err)
			}
		}
	}
}

var ownSeries = regexp.MustCompile(`(?m)^((?:ratelimit|runtime)_.*) (\S+)$`)

// series returns the series of an exposition that are the service's own, with their values.
func series(text string) map[string]string {
	all := make(map[string]string)
	for _, line := range ownSeries.FindAllStringSubmatch(text, -1) {
		all[line[1]] = line[2]
	}
	return all
}

// sideBySide reads the table "Metrics side by side" of docs/envoy.md: names, and same, name or none.
func sideBySide(t *testing.T) (rows map[string]string) {
	t.Helper()
	_, section, _ := strings.Cut(string(readFile(t, repository+"/docs/envoy.md")), "### Metrics side by side\n")
	section, _, _ = strings.Cut(section, "\n#")
	rows = make(map[string]string)
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, name := range regexp.MustCompile("`([a-z0-9A-Z_*]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = strings.TrimSpace(cells[2])
		}
	}
	return rows
}

// Every series that Envoy's service has after some requests, as recorded from its own binary, is here with the same name,
// labels and value, or is a row of docs/envoy.md that says why not.
func TestMetricsAreThoseOfEnvoysService(t *testing.T) {
	p := serve(t, "--config", "testdata/original/config.yaml", "--redis", redistest.Start(t).Addr())
	askAll(t, p.dial(t))
	_, text := get(t, p.admin+"/metrics")
	here, there, rows := series(text), series(string(readFile(t, "testdata/original/metrics.txt"))), sideBySide(t)
	if len(there) < 50 || len(rows) < 10 {
		t.Fatalf("%d series are recorded, and docs/envoy.md has %d rows", len(there), len(rows))
	}
	met := make(map[string]bool)
	for _, s := range slices.Sorted(maps.Keys(there)) {
		name, _, _ := strings.Cut(s, "{")
		row := rowOf(rows, name)
		met[row] = true
		value, ok := here[s]
		if row == "" || rows[row] != "none" && !ok || rows[row] == "same" && value != there[s] {
			t.Errorf("%s is %q here and %q there, and docs/envoy.md says %q of it", s, value, there[s], rows[row])
		}
	}
	for row := range rows {
		if !met[row] {
			t.Errorf("docs/envoy.md has a row for %s, which Envoy's service does not have", row)
		}
	}
}

// rowOf returns the row for a name: the longest one that matches.
func rowOf(rows map[string]string, name string) (row string) {
	for pattern := range rows {
		if regexp.MustCompile("^"+strings.ReplaceAll(pattern, "*", ".*")+"$").MatchString(name) && len(pattern) > len(row) {
			row = pattern
		}
	}
	return row
}

// sorted returns the lines of a text that are no comments, in order.
func sorted(text string) string {
	lines := slices.DeleteFunc(slices.Sorted(strings.Lines(text)), func(line string) bool { return strings.HasPrefix(line, "#") })
	return strings.Join(lines, "")
}

// jsonAnswers asks /json by several methods, and returns the statuses, content types and bodies, without what depends on
// the time.
func jsonAnswers(t *testing.T, url string) string {
	t.Helper()
	const one = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"json"}]}]}`
	var out strings.Builder
	for _, c := range [][2]string{
		{"POST", one}, {"GET", one}, {"PUT", one}, {"PATCH", one}, {"DELETE", one}, {"POST", one}, {"GET", one},
		{"GET", ""}, {"HEAD", ""}, {"POST", "{"}, {"PUT", `{"x":1}`}, {"POST", `{"domain":""}`}, {"POST", `{"domain":"edge"}`},
		{"POST", strings.ReplaceAll(one, "edge", "none")},
	} {
		res, body := send(t, c[0], url, c[1])
		text := regexp.MustCompile(`, *"durationUntilReset": *"[0-9]+s"`).ReplaceAllString(body, "")
		if res.StatusCode == 400 {
			text = "" // the text says what is wrong here, and nothing there
		}
		text = strings.ReplaceAll(text, ", ", ",") // protojson puts a space there, or not
		fmt.Fprintf(&out, "%s %s: %d %s %s\n", c[0], c[1], res.StatusCode, res.Header.Get("Content-Type"), text)
	}
	return out.String()
}

// The lines of /rlconfig and the answers of /json are those of Envoy's service.
func TestEndpointsAnswerAsEnvoysService(t *testing.T) {
	p := serve(t, "--config", "testdata/original/config.yaml")
	_, dumped := get(t, p.admin+"/rlconfig")
	for name, got := range map[string]string{"rlconfig": sorted(dumped), "json": jsonAnswers(t, p.url+"/json")} {
		if want := string(readFile(t, "testdata/original/"+name+".txt")); got != want {
			t.Errorf("/%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}
