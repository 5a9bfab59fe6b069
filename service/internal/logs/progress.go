package logs

import (
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A progress is a bar on a terminal. Its methods may be called concurrently.
type progress struct {
	bar *progressbar.ProgressBar // nil without a terminal
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// terminalWidth returns the columns of a terminal, or 0.
func terminalWidth(out io.Writer) int {
	if file, ok := out.(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil {
			return n
		}
	}
	return 0
}

// progress shows a bar if standard error is a terminal. A total of 0 is unknown.
func (a *app) progress(what string, total int64) *progress {
	file, ok := a.err.(*os.File)
	if !ok || !isTerminal(file) {
		return &progress{}
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(a.err), progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100_000_000), progressbar.OptionClearOnFinish(),
	}
	if total == 0 { // of a pipe
		total, options = -1, append(options, progressbar.OptionShowBytes(true))
	}
	return &progress{bar: progressbar.NewOptions64(total, options...)}
}

// reader counts what is read through it.
func (p *progress) reader(from io.Reader) io.Reader {
	if p.bar == nil {
		return from
	}
	return io.TeeReader(from, p)
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	_ = p.bar.Add(len(b))
	return len(b), nil
}

func (p *progress) set(done int64) {
	if p.bar != nil {
		_ = p.bar.Set64(done)
	}
}

// pass shows one of several passes, which begins with 0. Its calls must not be concurrent.
func (p *progress) pass(done int64) {
	if p.bar != nil && done == 0 {
		p.bar.Reset()
	}
	p.set(done)
}

func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
