package echarts

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// The script is the one that was built from the packages of the lock file: its first lines name them with their hashes,
// and its own hash was written with it. make test-charts builds it again, and compares every byte.
func TestTheScriptIsThatOfTheLockFile(t *testing.T) {
	script := servertest.Must(Script())(t)
	sum := servertest.Must(os.ReadFile("echarts.min.js.sha256"))(t)
	if got := fmt.Sprintf("%x  echarts.min.js\n", sha256.Sum256([]byte(script))); got != string(sum) {
		t.Errorf("the script is %s, and not the one that was built, %s: run make charts", got, sum)
	}
	file := servertest.Must(os.ReadFile("package-lock.json"))(t)
	var lock struct {
		Packages map[string]struct {
			Version, Integrity string
			Dev                bool
		}
	}
	servertest.Check(t, json.Unmarshal(file, &lock))
	want := "/*!\n"
	for _, path := range slices.Sorted(maps.Keys(lock.Packages)) {
		if p := lock.Packages[path]; path != "" && !p.Dev {
			want += strings.TrimPrefix(path, "node_modules/") + " " + p.Version + " " + p.Integrity + "\n"
		}
	}
	if !strings.HasPrefix(script, want+"\n") || strings.Count(want, "sha512-") != 3 {
		t.Errorf("the script begins with\n%.400s\nwant the packages of the lock file, %s: run make charts", script, want)
	}
	for _, license := range []string{"Copyright 2017-2026 The Apache Software Foundation", "Licensed under the Apache License, Version 2.0", "BSD 3-Clause License", "Microsoft Corporation"} {
		if !strings.Contains(script, license) {
			t.Errorf("the script does not have its licenses: no %q", license)
		}
	}
}

// The script stands between tags of HTML, under a policy that forbids scripts made of text.
func TestTheScriptMayStandInAPage(t *testing.T) {
	script := servertest.Must(Script())(t)
	for _, no := range []string{"</script", "<!--", "eval(", "new Function", "import("} {
		if strings.Contains(strings.ToLower(script), strings.ToLower(no)) {
			t.Errorf("the script has %s", no)
		}
	}
}
