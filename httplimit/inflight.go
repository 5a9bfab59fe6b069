package httplimit

import (
	"net/http"
	"sync"
)

// inFlight counts the attempts of each subject that are on their way in this process. The zero value
// is empty.
type inFlight struct {
	mu sync.Mutex
	n  map[flight]int64 // guarded by mu; a subject with none is not there
}

type flight struct {
	layer *AttemptLayer
	key   string
}

// enter counts an attempt and returns how many there are with it. An attempt that is let in only when
// its limit has room for that many leaves room for all that entered before it.
func (f *inFlight) enter(layer *AttemptLayer, key string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = make(map[flight]int64)
	}
	f.n[flight{layer, key}]++
	return f.n[flight{layer, key}]
}

// leave is called after the attempt was charged, so that it is never uncounted in between.
func (f *inFlight) leave(layer *AttemptLayer, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := flight{layer, key}
	if f.n[at]--; f.n[at] == 0 {
		delete(f.n, at)
	}
}

// A statusRecorder remembers the status that a handler sent.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the first status that is final; informational ones may come before it.
func (s *statusRecorder) WriteHeader(status int) {
	if s.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Write makes the status 200 if none was sent before, as net/http does.
func (s *statusRecorder) Write(p []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return s.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush, hijack and set deadlines.
func (s *statusRecorder) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// final returns what the client sees: a handler that sends nothing answers 200.
func (s *statusRecorder) final() int {
	if s.status == 0 {
		return http.StatusOK
	}
	return s.status
}
