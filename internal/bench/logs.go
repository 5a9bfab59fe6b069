package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// logs measures sash-logs beside GoAccess, on a made log in the combined format.
func (b *bench) logs() error {
	lines := 1_000_000
	if b.rounds == 1 {
		lines = 10_000
	}
	path, err := filepath.Abs(filepath.Join(b.dir, "access.log"))
	if err != nil {
		return err
	}
	if err := makeLog(path, lines); err != nil {
		return err
	}
	binary, err := b.build("sash-logs")
	if err != nil {
		return err
	}
	commands := [][]string{
		{"sash-logs replay", binary, "replay", "--try", "60/1m", "--try", "20/1s,600/1m", path},
		{"sash-logs suggest", binary, "suggest", path},
		{"GoAccess", "goaccess", path, "--log-format=COMBINED", "--no-progress", "--no-parsing-spinner", "-o", filepath.Join(b.dir, "report.html")},
	}
	t := table{name: "an access log", versions: []string{fmt.Sprintf("%d lines", lines)}, head: []string{"command", "seconds", "processor seconds", "MB"}}
	if version, err := exec.Command("goaccess", "--version").Output(); err != nil {
		b.say("not measured: GoAccess: %v", err)
		commands = commands[:2]
	} else {
		first, _, _ := strings.Cut(string(version), "\n")
		t.versions = append(t.versions, strings.TrimSuffix(first, "."))
	}
	wall, cpu, memory := make([]figure, len(commands)), make([]figure, len(commands)), make([]figure, len(commands))
	if err := b.alternate(len(commands), func(i int) error {
		b.say("%s", commands[i][0])
		cmd := exec.CommandContext(b.ctx, commands[i][1], commands[i][2:]...)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", commands[i][0], err, out)
		}
		used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		wall[i] = append(wall[i], time.Since(began).Seconds())
		cpu[i] = append(cpu[i], (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		memory[i] = append(memory[i], float64(used.Maxrss)/1000)
		return nil
	}); err != nil {
		return err
	}
	for i, c := range commands {
		t.row(c[0], wall[i], cpu[i], memory[i])
	}
	b.tables = append(b.tables, t)
	return nil
}

// makeLog writes a log of a day: clients by a Zipf distribution, on 500 paths.
func makeLog(path string, lines int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	random := rand.New(rand.NewPCG(1, 2))
	clients, paths := rand.NewZipf(random, 1.2, 10, 99_999), rand.NewZipf(random, 1.3, 5, 499)
	w := bufio.NewWriter(f)
	at := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)
	for range lines {
		c := clients.Uint64()
		at = at.Add(time.Duration(random.ExpFloat64() * float64(24*time.Hour) / float64(lines)))
		fmt.Fprintf(w, "10.%d.%d.%d - - [%s] \"GET /page/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0\"\n",
			c>>16, c>>8&255, c&255, at.Format("02/Jan/2006:15:04:05 -0700"), paths.Uint64(), 200+random.IntN(20_000))
	}
	return w.Flush()
}
