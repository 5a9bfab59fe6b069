package replay

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"example.com/sash/replay/accesslog"
)

// write writes lines of a busy server's log: 116 requests a second, few clients with most of them, times up to
// two seconds out of order.
func write(to io.Writer, lines int) error {
	w := bufio.NewWriterSize(to, 1<<20)
	r := rand.New(rand.NewPCG(1, 1))
	clients := rand.NewZipf(r, 1.1, 5, 199_999)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range lines {
		if i%116 == 0 {
			at = at.Add(time.Second)
		}
		c := clients.Uint64()
		late := time.Duration(r.IntN(3)) * time.Second
		if _, err := fmt.Fprintf(w, "10.%d.%d.%d - - [%s] \"GET /items/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\"\n",
			c>>16, c>>8&255, c&255, at.Add(-late).Format("02/Jan/2006:15:04:05 -0700"), r.IntN(50_000), r.IntN(100_000)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// One run is ten million lines through three candidates, made while they are read:
//
//	go test ./replay -run '^$' -bench TenMillionLines -benchtime 1x
func BenchmarkTenMillionLines(b *testing.B) {
	const lines = 10_000_000
	for b.Loop() {
		from, to := io.Pipe()
		go func() { _ = to.CloseWithError(write(to, lines)) }()
		selector, err := NewSelector(Expressions{})
		if err != nil {
			b.Fatal(err)
		}
		var builder Builder
		_, err = accesslog.Read(b.Context(), "made", from, nil, func(r *accesslog.Record) error {
			selection, _, err := selector.Select(r)
			builder.Add(r.Time, selection)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		trace := builder.Trace()
		var candidates []Candidate
		for _, text := range []string{"60/1m", "300/5m", "20/1s,600/1m"} {
			limits, err := ParseLimits(text)
			if err != nil {
				b.Fatal(err)
			}
			candidates = append(candidates, Candidate{Limits: limits})
		}
		if _, err := trace.Run(b.Context(), candidates, nil); err != nil {
			b.Fatal(err)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/lines, "memory-B/line")
	}
}
