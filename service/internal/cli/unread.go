package cli

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// mostLines bounds the lines of the log that wait until they are read.
const mostLines = 1024

// A lossy writer writes in the background, and drops lines while nobody reads: the service must answer, and end, whatever
// happens to its log. Each Write is a line.
type lossy struct {
	lines chan []byte // nil ends it
	lost  atomic.Int64
	ended chan struct{}
}

func newLossy(to io.Writer) *lossy {
	l := &lossy{lines: make(chan []byte, mostLines), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for line := range l.lines {
			if line != nil {
				_, _ = to.Write(line)
			}
			if n := l.lost.Swap(0); n > 0 {
				_, _ = fmt.Fprintf(to, "{\"level\":\"WARN\",\"msg\":\"lines of this log are lost, because nobody read it in time\",\"lines\":%d}\n", n)
			}
			if line == nil {
				return
			}
		}
	}()
	return l
}

// Write implements io.Writer. It never waits.
func (l *lossy) Write(line []byte) (int, error) {
	select {
	case l.lines <- append([]byte{}, line...):
	default:
		l.lost.Add(1)
	}
	return len(line), nil
}

// end waits for a moment until the lines are written, and reports whether they are. Nothing may be written after it.
func (l *lossy) end(within time.Duration) (all bool) {
	over := time.After(within)
	select {
	case l.lines <- nil:
	case <-over:
		return false
	}
	select {
	case <-l.ended:
		return true
	case <-over:
		return false
	}
}
