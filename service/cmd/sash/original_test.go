package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/internal/redistest"
)

// asked are the requests of testdata/original, one a line: the domain and entries, and how often.
var asked = []struct {
	times   int
	domain  string
	entries []string
}{
	{7, "edge", []string{"user=ann"}},
	{1, "edge", []string{"plan=gold"}},
	{2, "edge", []string{"host=a.example"}},
	{3, "edge", []string{"path=/api/v1"}},
	{4, "edge", []string{"free=x"}},
	{3, "edge", []string{"soft=x"}},
	{1, "edge", []string{"address=192.0.2.7"}},
	{2, "edge", []string{"address=v1.2"}},
	{3, "edge", []string{"address=2001:db8::1"}},
	{4, "edge", []string{"address="}},
	{5, "edge", []string{"address=a|b"}},
	{1, "edge", []string{"tenant=t.7"}},
	{2, "edge", []string{"tenant="}},
	{1, "edge", []string{"a=1", "b=x"}},
	{2, "edge", []string{"a=1", "b=x", "c=2"}},
	{4, "edge", []string{"a=1", "b=x", "d=2"}},
	{2, "edge", []string{"unknown=x"}},
	{2, "no-such.domain", []string{"user=ann"}},
	{2, "", []string{"user=ann"}}, // an error
	{3, "edge", nil},              // an error
}

// askAll sends the requests.
func askAll(t *testing.T, client pb.RateLimitServiceClient) {
	t.Helper()
	for _, a := range asked {
		req := &pb.RateLimitRequest{Domain: a.domain}
		if len(a.entries) > 0 {
			req.Descriptors = []*common.RateLimitDescriptor{{}}
		}
		for _, entry := range a.entries {
			key, value, _ := strings.Cut(entry, "=")
			d := req.Descriptors[0]
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		for range a.times {
			if _, err := client.ShouldRateLimit(t.Context(), req); (err != nil) != (a.domain == "" || a.entries == nil) {
				t.Fatalf("%v: %v", a, err)
			}
		}
	}
}

// series returns the series of an exposition that are the service's own, with their values.
func series(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") && regexp.MustCompile(`^(ratelimit|runtime)_`).MatchString(line) {
			all[line[:i]] = line[i+1:]
		}
	}
	return all
}

// sideBySide reads the table "Metrics side by side" of docs/envoy.md: names, and same, name or none.
func sideBySide(t *testing.T) (rows map[string]string) {
	t.Helper()
	text := readFile(t, "../../../docs/envoy.md")
	_, section, _ := strings.Cut(string(text), "### Metrics side by side\n")
	section, _, _ = strings.Cut(section, "\n#")
	rows = make(map[string]string)
	lines := bufio.NewScanner(strings.NewReader(section))
	for lines.Scan() {
		cells := strings.Split(lines.Text(), "|")
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
	recorded := readFile(t, "testdata/original/metrics.txt")
	redis := redistest.Start(t)
	p := serve(t, "--config", "testdata/original/config.yaml", "--redis", redis.Addr())
	askAll(t, p.dial(t))
	_, text := get(t, p.admin+"/metrics")
	here, there, rows := series(text), series(string(recorded)), sideBySide(t)
	if len(there) < 50 || len(rows) < 10 {
		t.Fatalf("%d series are recorded, and docs/envoy.md has %d rows", len(there), len(rows))
	}
	met := make(map[string]bool)
	for _, s := range slices.Sorted(maps.Keys(there)) {
		name, _, _ := strings.Cut(s, "{")
		row := rowOf(rows, name)
		met[row] = true
		switch value, ok := here[s]; {
		case row == "":
			t.Errorf("docs/envoy.md has no row for %s", s)
		case rows[row] == "same" && !ok:
			t.Errorf("%s is not here", s)
		case rows[row] == "same" && value != there[s]:
			t.Errorf("%s is %s here and %s there", s, value, there[s])
		case rows[row] == "name" && !ok:
			t.Errorf("%s is not here, under any value", s)
		}
	}
	for row := range rows {
		if !met[row] {
			t.Errorf("docs/envoy.md has a row for %s, which Envoy's service does not have", row)
		}
	}
}

// rowOf returns the row for a name: its own, or the one whose * matches most of it.
func rowOf(rows map[string]string, name string) (row string) {
	for pattern := range rows {
		expr := "^" + strings.ReplaceAll(pattern, "*", ".*") + "$"
		if pattern == name {
			return pattern
		}
		if regexp.MustCompile(expr).MatchString(name) && len(pattern) > len(row) {
			row = pattern
		}
	}
	return row
}

// sorted returns the lines of a text that are no comments, in order.
func sorted(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
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
		req := newRequest(t, c[0], url, strings.NewReader(c[1]))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`, *"durationUntilReset": *"[0-9]+s"`).ReplaceAllString(string(body), "")
		if res.StatusCode == http.StatusBadRequest {
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
		want := readFile(t, "testdata/original/"+name+".txt")
		if got != string(want) {
			t.Errorf("/%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}
