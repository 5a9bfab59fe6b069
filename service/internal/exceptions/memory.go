package exceptions

import (
	"context"
	"sync"
	"time"
)

// memory keeps the document in this process.
type memory struct {
	mu  sync.Mutex
	doc document // guarded by mu
}

func (m *memory) version(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doc.version(), nil
}

func (m *memory) read(context.Context) (document, time.Time, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doc, time.Now(), nil
}

func (m *memory) write(_ context.Context, instead string, doc document, _ time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doc.version() != instead {
		return false, nil
	}
	m.doc = doc
	return true, nil
}
