package access

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Certificates that no port verifies identify nobody: the operator learns it at the start and after each change.
func TestCertificatesThatNoPortVerifiesAreAWarning(t *testing.T) {
	const text = "clients: [{name: edge, certificates: [edge.example.com, www.example.com], allow: [decide]}, " +
		"{name: batch, certificates: [batch.example.com], allow: [decide]}]\n"
	for _, verified := range []bool{false, true} {
		w := &world{file: filepath.Join(t.TempDir(), "access.yaml"), now: time.Unix(1_800_000_000, 0)}
		write(t, w.file, text)
		var err error
		w.Gate, err = Open(w.file, &Options{
			Certificates: verified, Log: slog.New(slog.NewTextHandler(&w.log, nil)), Now: func() time.Time { return w.now },
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, w.file, text+"anonymous: {allow: [decide]}\n")
		w.now = w.now.Add(lookEvery)
		_ = w.may(t, "", "d", Decide)
		warnings := strings.Count(w.log.String(), "no port verifies them")
		if verified != (warnings == 0) || !verified && (warnings != 2 || !strings.Contains(w.log.String(), `clients="batch, edge" number=2`)) {
			t.Errorf("verified %v: %s", verified, w.log.String())
		}
	}
}
