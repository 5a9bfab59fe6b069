package main

import (
	"bytes"
	"fmt"
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

// binary is the directory in which this test binary is sash-logs and sash.
var binary string

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "sash-logs":
		main()
	case "sash":
		os.Exit(cli.Run(cli.Signals(), cli.Args(os.Args), os.Stdin, os.Stdout, os.Stderr, os.Getenv))
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "sash-logs-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		self, err := os.Executable()
		for _, name := range []string{"sash-logs", "sash"} {
			if err == nil {
				err = os.Symlink(self, filepath.Join(dir, name))
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		binary = dir
		return m.Run()
	}())
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

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
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

// addresses returns the client address of every line of the sample.
func addresses(t *testing.T) (all []string) {
	t.Helper()
	for line := range strings.Lines(string(readFile(t, sampleLog))) {
		address, _, _ := strings.Cut(line, " ")
		all = append(all, address)
	}
	return all
}
