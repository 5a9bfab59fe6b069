package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkRead reports the time of one line in the formats that most logs have.
func BenchmarkRead(b *testing.B) {
	const lines = 20_000
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, line := range map[string]func(i int, at time.Time) string{
		"combined": func(i int, at time.Time) string {
			return fmt.Sprintf("10.%d.%d.7 - - [%s] \"GET /items/%d HTTP/1.1\" 200 %d \"-\" \"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101\"\n",
				i%7, i%250, at.Format("02/Jan/2006:15:04:05 -0700"), i, 3*i)
		},
		"json": func(i int, at time.Time) string {
			return fmt.Sprintf(`{"time_iso8601":%q,"msec":"%d.123","remote_addr":"10.%d.%d.7","remote_user":"-","request":"GET /items/%d HTTP/1.1","status":"200","body_bytes_sent":"%d","request_time":"0.25","http_user_agent":"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101"}`+"\n",
				at.Format(time.RFC3339), at.Unix(), i%7, i%250, i, 3*i)
		},
	} {
		var text strings.Builder
		for i := range lines {
			text.WriteString(line(i, at.Add(time.Duration(i)*time.Second/100)))
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				if stats, err := Read("log", strings.NewReader(text.String()), Options{}, func(*Record) error { return nil }); err != nil || stats.Records != lines {
					b.Fatal(stats, err)
				}
			}
			b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
