package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/service/internal/cli"
	"example.com/sash/service/internal/logs"
)

const (
	repository = "../../.."
	wholeLog   = "../../../../shared/data/apache_access.log" // beside the repository
	sampleLog  = "../../testdata/access_log_sample.log"
)

// As sash-logs and as sash this test binary is that command.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "sash-logs":
		main()
	case "sash":
		os.Exit(cli.Run(cli.Signals(), cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	}
	os.Exit(m.Run())
}

// sash runs a command in this process. Its standard input is empty.
func sash(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return sashReads(t, strings.NewReader(""), args...)
}

func sashReads(t *testing.T, in io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = logs.Run(args, in, &out, &err)
	return code, out.String(), err.String()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	return must(os.ReadFile(name))
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tempFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	put(t, file, text)
	return file
}
