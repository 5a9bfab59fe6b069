package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/internal/bench/servers"
	"example.com/sash/internal/redistest"
)

const pack = "example.com/sash/internal/faulttest"

// said are the lines of a run with two tests of two parts each, after the given ones.
func said(lines ...string) string {
	all := append(lines,
		`{"Action":"run","Package":"`+pack+`","Test":"TestA"}`,
		`{"Action":"run","Package":"`+pack+`","Test":"TestA/go-redis"}`,
		`{"Action":"run","Package":"`+pack+`","Test":"TestA/go-redis/one"}`,
		`{"Action":"run","Package":"`+pack+`","Test":"TestA/rueidis"}`,
		`{"Action":"pass","Package":"`+pack+`","Test":"TestA/go-redis/one"}`,
		`{"Action":"pass","Package":"`+pack+`","Test":"TestA/go-redis"}`,
		`{"Action":"pass","Package":"`+pack+`","Test":"TestA/rueidis"}`,
		`{"Action":"pass","Package":"`+pack+`","Test":"TestA"}`,
		`{"Action":"run","Package":"`+pack+`","Test":"TestB"}`,
		`{"Action":"pass","Package":"`+pack+`","Test":"TestB"}`,
		`{"Action":"pass","Package":"`+pack+`"}`)
	return strings.Join(all, "\n")
}

func ranOn(version string) string {
	return `{"Action":"output","Package":"` + pack + `","Output":"` + redistest.Banner + version + `\n"}`
}

func TestPartsAreCountedByClient(t *testing.T) {
	s, server := suite{name: "faults"}, servers.Server{Name: "Redis", Version: "8.2.3"}
	counts, err := s.count(strings.NewReader(said(ranOn("Redis 8.2.3"))), server)
	if err != nil || len(counts) != 3 || counts["go-redis"] != 1 || counts["rueidis"] != 1 || counts["both"] != 1 {
		t.Errorf("%v, %v", counts, err)
	}
	for name, events := range map[string]string{
		"another server":  said(ranOn("Redis 8.2.30")),
		"no server named": said(),
		"a failed test": said(ranOn("Redis 8.2.3"), `{"Action":"output","Package":"`+pack+`","Test":"TestC","Output":"why"}`,
			`{"Action":"fail","Package":"`+pack+`","Test":"TestC"}`),
	} {
		if counts, err := s.count(strings.NewReader(events), server); err == nil {
			t.Errorf("%s: %v", name, counts)
		}
	}
}

// What ran is replaced, with what has no test any more; other suites of the server and other servers stay, and servers that
// are not tested any more go.
func TestOnlyWhatRanIsReplaced(t *testing.T) {
	all := []servers.Server{{Name: "Redis", Version: "8.2.3"}, {Name: "Valkey", Version: "9.1.2"}}
	facts, faults, starts := suites[1].name, suites[2].name, suites[3].name
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("before\n"+begin+
		"| suite | client | Redis 8.2.2 | Redis 8.2.3 | Valkey 9.1.2 |\n| --- | --- | --- | --- | --- |\n"+
		"| "+facts+" | go-redis | 1 | 2 | 3 |\n| "+facts+" | none | 1 | 2 | - |\n| "+starts+" | none | 1 | 7 | 8 |\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(page, all, map[cell]int{{facts, "go-redis", "Redis 8.2.3"}: 4, {faults, "rueidis", "Redis 8.2.3"}: 5}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	want := "before\n" + begin + "| suite | client | Redis 8.2.3 | Valkey 9.1.2 |\n| --- | --- | --- | --- |\n" +
		"| " + facts + " | go-redis | 4 | 3 |\n| " + faults + " | rueidis | 5 | - |\n| " + starts + " | none | 7 | 8 |\n" + end + "after\n"
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	if err := os.WriteFile(page, []byte("no table\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(page, all, map[cell]int{}); err == nil {
		t.Error("a page without a place for the table was written")
	}
}
