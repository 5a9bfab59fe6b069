package rivals

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A Program decides in one language, by the protocol of this package.
type Program struct {
	Name   string     // of its folder; empty for a program that is installed already
	Rivals string     // what is not measured without it, such as "limits (Python)"
	Get    [][]string // commands that install it, run in the copy of its folder
	Start  []string   // the program and its arguments before the addresses
}

//go:embed gubernator java node python
var folders embed.FS

// programs are those that are not written in Go.
var programs = []Program{
	{
		Name: "python", Rivals: "limits (Python)",
		Get: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "-r", "requirements.txt"},
		},
		Start: []string{"venv/bin/python", "main.py"},
	},
	{
		Name: "node", Rivals: "rate-limiter-flexible and upstash (Node)",
		Get:   [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		Start: []string{"node", "main.js"},
	},
	{
		Name: "java", Rivals: "bucket4j (Java)",
		Get:   [][]string{{"mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"}},
		Start: []string{"java", "-cp", "target/classes:lib/*", "Main"},
	},
	{
		Name: "gubernator", Rivals: "gubernator (Go, in its own memory)",
		Get: [][]string{
			{"go", "mod", "init", "gubernator"},
			{"env", "GOWORK=off", "GOFLAGS=-mod=mod", "go", "get", "github.com/mailgun/gubernator/v2@v2.4.0"},
			{"env", "GOWORK=off", "GOFLAGS=-mod=mod", "go", "build", "-o", "gubernator", "main.go"},
		},
		Start: []string{"./gubernator"},
	},
}

// installTime is the longest that the installation of a program takes.
const installTime = 5 * time.Minute

// install copies the program's folder below a directory and installs it there, unless that has been done with the same
// files and commands. It returns the directory in which the program starts.
func (p Program) install(ctx context.Context, below string) (dir string, err error) {
	if p.Name == "" {
		return "", nil
	}
	files, err := fs.Sub(folders, p.Name)
	if err != nil {
		return "", err
	}
	sum, err := p.sum(files)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(filepath.Join(below, p.Name)); err != nil {
		return "", err
	}
	installed := filepath.Join(dir, ".installed") // written last
	if have, err := os.ReadFile(installed); err == nil && string(have) == sum {
		return dir, nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, files)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	for _, command := range p.Get {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends what it has started
		if out, err := cmd.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("there is no %s", command[0])
		} else if err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	return dir, os.WriteFile(installed, []byte(sum), 0o644)
}

// sum returns a sum of the commands that install the program, and of the names and the contents of its files.
func (p Program) sum(files fs.FS) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", p.Get)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		fmt.Fprintf(sum, "%s %d\n", path, len(text))
		_, _ = sum.Write(text) // a hash returns no error
		return err
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

// start installs the program and starts it. Its first line says which contenders it has.
func (p Program) start(ctx context.Context, below, redis, sash string, stderr io.Writer) (*child, error) {
	dir, err := p.install(ctx, below)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(p.Start[0], append(p.Start[1:len(p.Start):len(p.Start)], redis, sash)...)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, stderr, time.Second
	return startChild(ctx, cmd)
}
