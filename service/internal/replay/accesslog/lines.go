package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

var errLong = fmt.Errorf("longer than %d bytes", maxLine)

// lines returns the lines of a log without their ends.
type lines struct {
	from   *bufio.Reader
	number int64
	long   []byte
}

// next returns a line, which is valid until the next call. The error errLong concerns that line only.
func (l *lines) next() ([]byte, error) {
	l.number++
	line, err := l.from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = append(l.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = l.from.ReadSlice('\n')
			l.long = append(l.long, line[:min(len(line), maxLine+2-min(len(l.long), maxLine+2))]...)
		}
		line = l.long
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last line has no line end
	}
	// A file that is copied and truncated under its writer begins with NULs, and one after a crash ends with them.
	line = bytes.Trim(line, "\r\n\x00")
	if err == nil && len(line) > maxLine {
		err = errLong
	}
	return line, err
}
