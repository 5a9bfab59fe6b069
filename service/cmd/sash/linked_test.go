package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What studies access logs is in sash-logs: the command that runs beside Envoy does not link it.
func TestTheCommandDoesNotLinkWhatStudiesLogs(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, unwanted := range []string{"expr-lang/expr", "klauspost/compress/zstd", "ulikunitz/xz", "internal/replay", "internal/logs"} {
		if strings.Contains(string(out), unwanted) {
			t.Errorf("sash links %s", unwanted)
		}
	}
}
