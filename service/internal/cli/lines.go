package cli

import (
	"fmt"
	"io"
)

// lines writes lines until one fails.
type lines struct {
	to  io.Writer
	err error // of the first that failed
}

func (l *lines) say(format string, args ...any) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.to, format+"\n", args...)
	}
}
