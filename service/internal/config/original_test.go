package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// A precedent is one line of testdata/envoy.jsonl: a configuration, and what Envoy's own service makes of it. The lines
// were written by running its loader and GetLimit, of github.com/envoyproxy/ratelimit at 3fb702589d36, with the matching
// of wildcards and the metadata of 759083401cf4. The generated ones are of random descriptors and requests.
type precedent struct {
	Name     string
	Files    []string
	Merge    bool
	Refused  bool
	Requests []struct {
		Entries           [][2]string
		Metric            string // "" if no rule matches
		Unlimited, Shadow bool
		Units             int64
		Unit, Name        string
		Replaces          []string
		Subject           string // what is counted together has the same
	}
}

// differences are the precedents that Sash does not follow, each with its row in docs/envoy.md.
var differences = map[string][]string{
	"`a_b` beside `a`=`b`":                      {"a_b beside a=b", "a_b alone", "a=b alone", "a=b_c* joined"},
	"a key in a wrong place":                    {"metadata at top", "metadata in rate_limit", "replaces wrong key", "key at a wrong place: unit", "key at a wrong place: top", "key at a wrong place: rate_limit at top", "key at a wrong place: shadow in rate_limit", "key at a wrong place: value in rate_limit"},
	"a key twice in a mapping":                  {"dup yaml key", "dup descriptors", "dup domain"},
	"`!!binary`":                                {"value !!binary aGk=", "key !!binary aGk=", "domain !!binary aGk=", "name !!binary aGk="},
	"several documents in a file":               {"two documents, second wrong", "two documents, first empty", "document end"},
	"no file":                                   {"no files"},
	"a value of `authorization` or `x-api-key`": {"authorization value", "authorization wildcard"},
	"keys of Sash":                              {"limits (sash)"},
}

func precedents(t *testing.T) []precedent {
	t.Helper()
	text, err := os.ReadFile("testdata/envoy.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []precedent
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text))
	for lines.Scan() {
		var p precedent
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 300 {
		t.Fatalf("%d precedents", len(all))
	}
	return all
}

// differs returns how Sash differs from a precedent; "" if it does not.
func (p *precedent) differs() string {
	files := make([]File, len(p.Files))
	for i, text := range p.Files {
		files[i] = File{Name: fmt.Sprintf("f%d.yaml", i), Text: []byte(text)}
	}
	cfg, err := Parse(Defaults{}, p.Merge, files...)
	switch {
	case p.Refused && err == nil:
		return "accepted"
	case p.Refused:
		return ""
	case err != nil:
		return "rejected: " + err.Error()
	}
	subjects, theirs := make(map[string]string), make(map[string]string)
	for _, r := range p.Requests {
		entries := make([]Entry, len(r.Entries))
		for i, e := range r.Entries {
			entries[i] = Entry{e[0], e[1]}
		}
		found, err := cfg.Find("d", entries)
		switch rule := found.Rule; {
		case err != nil:
			return err.Error()
		case (rule != nil) != (r.Metric != ""):
			return fmt.Sprintf("%v: the rule %v, and theirs is counted as %q", entries, rule, r.Metric)
		case rule == nil:
		case rule.Unlimited != r.Unlimited || rule.Shadow != r.Shadow || rule.Name != r.Name || !slices.Equal(rule.Replaces, r.Replaces) || found.Metric != r.Metric:
			return fmt.Sprintf("%v: %s, counted as %q; theirs %+v", entries, rule.Describe(), found.Metric, r)
		case rule.Unlimited:
		case rule.Limits[0].Units != r.Units || rule.Limits[0].Window != envoyUnits[strings.ToUpper(r.Unit)]:
			return fmt.Sprintf("%v: %s; theirs %d a %s", entries, rule.Describe(), r.Units, r.Unit)
		case subjects[r.Subject] != "" && subjects[r.Subject] != found.Key || theirs[found.Key] != "" && theirs[found.Key] != r.Subject:
			return fmt.Sprintf("%v: counted under %s with others than there", entries, found.Key)
		default:
			subjects[r.Subject], theirs[found.Key] = found.Key, r.Subject
		}
	}
	return ""
}

func TestConfigurationsMeanWhatTheyDoToEnvoysService(t *testing.T) {
	docs, err := os.ReadFile("../../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]string)
	for row, names := range differences {
		if !strings.Contains(string(docs), "\n| "+row+" |") {
			t.Errorf("docs/envoy.md has no row %q", row)
		}
		for _, name := range names {
			known[name] = row
		}
	}
	for _, p := range precedents(t) {
		difference := p.differs()
		row, wanted := known[p.Name]
		delete(known, p.Name)
		if difference != "" && !wanted {
			t.Errorf("%s: %s\n%s", p.Name, difference, strings.Join(p.Files, "---\n"))
		}
		if difference == "" && wanted {
			t.Errorf("%s: no difference, although there is a row %q", p.Name, row)
		}
	}
	for name := range known {
		t.Errorf("there is no precedent %q", name)
	}
}

// Merge keys can expand without bound, and lead back to themselves.
func TestMergeKeysAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n- &a0 {key: a}\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "- &a%d {<<: [%s]}\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	for text, say := range map[string]string{
		"domain: d\ndescriptors:\n- &x {key: a, <<: *x}\n": "nested more than 100 deep",
		b.String(): "",
	} {
		if _, err := Parse(Defaults{}, false, File{"f.yaml", []byte(text)}); err == nil || !strings.HasPrefix(err.Error(), "f.yaml:") || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q", text[:min(len(text), 60)], err, say)
		}
	}
}
