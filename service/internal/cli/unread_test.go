package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// Nobody who writes to a log waits for its reader, and what is read in time is whole and in order.
func TestALogThatNobodyReadsKeepsNobodyWaiting(t *testing.T) {
	r, w := io.Pipe()
	log := newLossy(w)
	written := make(chan struct{})
	go func() {
		for i := range mostLines + 100 {
			_, _ = fmt.Fprintf(log, "line %d\n", i)
		}
		log.end(time.Millisecond)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
	var read bytes.Buffer
	all := make(chan error)
	go func() { _, err := read.ReadFrom(r); all <- err }()
	log.end(10 * time.Second)
	_ = w.Close()
	<-all
	if text := read.String(); !strings.HasPrefix(text, "line 0\n") || !strings.Contains(text, "are lost") {
		t.Errorf("%.200q", text)
	}
}
