package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// programs are limiters of other languages, each in a program of its own. A program gets the address of Redis as its
// argument and writes one line of JSON with its version. Then it answers each line with a workload by one with an outcome.
var programs = []struct {
	name, dir string
	get       [][]string // installs it, in a copy of its folder
	start     []string
}{
	{
		"limits, moving window (Python)", "python",
		[][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "-r", "requirements.txt"},
		},
		[]string{"venv/bin/python", "main.py"},
	},
	{
		"rate-limiter-flexible, fixed window (Node)", "node",
		[][]string{{"npm", "install", "--silent", "--no-audit", "--no-fund"}},
		[]string{"node", "main.js"},
	},
	{
		"bucket4j, token bucket (Java)", "java",
		[][]string{{"mvn", "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"}},
		[]string{"java", "-cp", "target/classes:lib/*", "Main"},
	},
}

// languages starts the programs that can be had, and says what is missing.
func (b *bench) languages(redis string) (all []contender, missing []string) {
	for i, p := range programs {
		b.say("installing %s", p.name)
		c, err := b.program(i, redis)
		if err != nil {
			b.say("not measured: %s: %v", p.name, err)
			missing = append(missing, "without "+p.name)
			continue
		}
		all = append(all, c)
	}
	return all, missing
}

// program installs and starts a program.
func (b *bench) program(i int, redis string) (contender, error) {
	p := programs[i]
	dir := filepath.Join(b.dir, p.dir)
	if err := install(b, p.dir, dir, p.get); err != nil {
		return contender{}, err
	}
	cmd := exec.Command(p.start[0], append(p.start[1:len(p.start):len(p.start)], redis)...)
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, os.Stderr, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return contender{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return contender{}, err
	}
	if err := cmd.Start(); err != nil {
		return contender{}, err
	}
	end := func() {
		_ = in.Close() // it ends with its input
		_ = cmd.Wait()
	}
	lines := bufio.NewReader(out)
	var hello struct{ Version string }
	if err := readLine(lines, &hello); err != nil {
		end()
		return contender{}, err
	}
	return contender{p.name, hello.Version, func(w workload, d time.Duration) (outcome, error) {
		ask, _ := json.Marshal(map[string]any{ // of numbers
			"keys": w.keys, "callers": w.callers, "units": w.units, "window_ms": w.window.Milliseconds(), "for_ms": d.Milliseconds(),
		})
		if _, err := fmt.Fprintf(in, "%s\n", ask); err != nil {
			return outcome{}, err
		}
		var o outcome
		err := readLine(lines, &o)
		return o, err
	}, end}, nil
}

func readLine(r *bufio.Reader, into any) error {
	line, err := r.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return errors.New("the program ended")
	} else if err != nil {
		return err
	}
	return json.Unmarshal(line, into)
}

// install copies a folder and runs the commands in it, unless that has been done.
func install(b *bench, name, dir string, commands [][]string) error {
	done := filepath.Join(dir, ".installed") // written last
	if _, err := os.Stat(done); err == nil {
		return nil
	}
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join("rivals", name)))); err != nil {
		return err
	}
	for _, command := range commands {
		cmd := exec.CommandContext(b.ctx, command[0], command[1:]...)
		cmd.Dir, cmd.WaitDelay = dir, time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
		}
	}
	return os.WriteFile(done, nil, 0o644)
}

// modules returns the versions of modules of this program.
func modules(paths ...string) (versions []string) {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if slices.Contains(paths, dep.Path) {
			versions = append(versions, strings.TrimPrefix(dep.Path, "github.com/")+" "+dep.Version)
		}
	}
	return versions
}
