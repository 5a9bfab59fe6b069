package accesslog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A lineSource returns the lines of a log.
type lineSource interface {
	// next returns a line without its end. It is valid until the next call. The error errLong concerns that line only.
	next() ([]byte, error)
	// at returns the number of the line in the file, counted from 1.
	at() int64
}

const journalExport = "journald's export"

// newLineSource returns the lines, or the messages of journald's export format. It reports that format's name, or "".
func newLineSource(from *bufio.Reader) (lineSource, string) {
	l := &lines{from: from}
	if start, _ := from.Peek(len("__CURSOR=")); string(start) == "__CURSOR=" {
		return &journal{lines: l}, journalExport
	}
	return l, ""
}

// A journal returns the messages of entries. An entry is lines of the form NAME=value, or a line with the NAME, the value's
// size in eight bytes, and the value. An empty line ends it.
type journal struct {
	*lines
	message []byte
}

func (j *journal) next() ([]byte, error) {
	found, long := false, false
	for {
		line, err := j.lines.next()
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended && !errors.Is(err, errLong) {
			return nil, err
		}
		switch {
		case len(line) == 0 && found && long:
			return j.message, errLong
		case len(line) == 0 && found:
			return j.message, nil
		case ended:
			return nil, io.EOF
		case len(line) == 0:
			continue
		}
		name, value, whole := bytes.Cut(line, []byte("="))
		isMessage := string(name) == "MESSAGE"
		if isMessage {
			found, long = true, errors.Is(err, errLong)
			j.message = append(j.message[:0], value...)
		}
		if whole {
			continue
		}
		size, err := j.size()
		if err != nil {
			return nil, err
		}
		if isMessage {
			long = size > maxLine
			if err = j.binary(min(size, maxLine)); err != nil {
				return nil, err
			}
			size -= min(size, maxLine)
		}
		if _, err = io.CopyN(io.Discard, j.from, size+1); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
}

func (j *journal) size() (int64, error) {
	var size uint64
	if err := binary.Read(j.from, binary.LittleEndian, &size); err != nil {
		return 0, cutOff(err)
	}
	if size > 1<<40 {
		return 0, fmt.Errorf("%s: a field has %d bytes", journalExport, size)
	}
	return int64(size), nil
}

// binary reads the message. A message of several lines is one.
func (j *journal) binary(size int64) error {
	var text bytes.Buffer
	_, err := io.CopyN(&text, j.from, size)
	j.message = append(j.message[:0], bytes.TrimRight(text.Bytes(), "\r\n")...)
	return cutOff(err)
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &DamagedError{journalExport, fmt.Errorf("the last field is cut off: %w", io.ErrUnexpectedEOF)}
	}
	return err
}
