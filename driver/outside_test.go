package driver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A store that is written in another module, with public packages only, passes the suite.
func TestAStoreFromOutsidePassesTheSuite(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "outside"))); err != nil {
		t.Fatal(err)
	}
	mod := "module elsewhere.test/outside\n\ngo 1.26.0\n\nrequire example.com/sash v0.0.0\n\nreplace example.com/sash => " + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
