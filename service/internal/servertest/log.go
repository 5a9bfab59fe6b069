package servertest

import (
	"strings"
	"sync"
)

// A Log is where a log writes, for tests that read it meanwhile. The zero value is empty.
type Log struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write appends a line.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all lines.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Lines is where a log writes: each line is one value.
type Lines chan string

// Write sends a line.
func (l Lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
