// Command replaybench sends a made access log through a pipe to sash replay, and prints how long that took and how much
// memory. Arguments after the flags are those of sash replay. See `make bench-replay`.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

func main() {
	lines := flag.Int64("lines", 100_000_000, "lines of the log")
	clients := flag.Uint64("clients", 1_000_000, "addresses that requests come from; few of them send most")
	sash := flag.String("sash", "bin/sash", "the command")
	only := flag.Bool("print", false, "write the log to standard output instead")
	flag.Parse()
	var err error
	if *only {
		err = write(os.Stdout, *lines, *clients)
	} else {
		err = run(*sash, *lines, *clients, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "replaybench:", err)
		os.Exit(1)
	}
}

func run(sash string, lines int64, clients uint64, args []string) error {
	if len(args) == 0 {
		args = []string{"--try", "60/1m", "--try", "20/1s,600/1m"}
	}
	cmd := exec.Command(sash, append([]string{"replay"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	written := write(in, lines, clients) // fails if sash ends before
	read := time.Since(start)
	if written != nil {
		_ = in.Close()
	}
	if err := errors.Join(cmd.Wait(), written); err != nil {
		return err
	}
	took := time.Since(start)
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	memory := usage.Maxrss << 10 // Linux counts KiB
	fmt.Printf("\n%d lines in %v (%v of them to read), %.0f lines/s; %v of processor time; %d MB of memory, %.1f bytes/line\n", lines,
		took.Round(100*time.Millisecond), read.Round(100*time.Millisecond), float64(lines)/took.Seconds(),
		(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(100*time.Millisecond), memory/1_000_000, float64(memory)/float64(lines))
	return nil
}

// write writes the log of a busy server: 116 requests a second, times up to two seconds out of order.
func write(to io.WriteCloser, lines int64, clients uint64) error {
	w := bufio.NewWriterSize(to, 1<<20)
	r := rand.New(rand.NewPCG(1, 1))
	client := rand.NewZipf(r, 1.1, 5, clients-1)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var line []byte
	var times [3]string
	for i := range lines {
		if i%116 == 0 {
			at = at.Add(time.Second)
			for late := range times {
				times[late] = at.Add(-time.Duration(late) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
			}
		}
		c := client.Uint64()
		line = append(line[:0], "10."...)
		line = append(strconv.AppendUint(line, c>>16&255, 10), '.')
		line = append(strconv.AppendUint(line, c>>8&255, 10), '.')
		line = strconv.AppendUint(line, c&255, 10)
		line = append(append(line, " - - ["...), times[r.IntN(len(times))]...)
		line = strconv.AppendInt(append(line, `] "GET /items/`...), r.Int64N(50_000), 10)
		line = strconv.AppendInt(append(line, ` HTTP/1.1" 200 `...), r.Int64N(100_000), 10)
		line = append(line, ` "-" "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101"`...)
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return to.Close()
}
