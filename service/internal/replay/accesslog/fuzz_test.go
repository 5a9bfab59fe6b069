package accesslog

import (
	"net/netip"
	"strings"
	"testing"
)

// Whatever the bytes are, reading ends, counts every line once, and gives no record without a time.
func FuzzRead(f *testing.F) {
	for i, seed := range []string{
		`192.0.2.7 - frank [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.0" 200 2326 "-" "\"\\"`,
		`{"ts":1431857103.5,"request":{"uri":"/","headers":{"A":["b"]}},"status":200}`,
		"time,status,\"a b\"\n2015-05-17 10:05:03,200,\"\"\"\"\n",
		`http 2015-05-17T10:05:03.186641Z app/lb/5 192.0.2.7:2817 - -1 -1 -1 460 - 34 366 "- http://h:80- -" "-" - -`,
		`10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"`,
		`192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-" 7 "r@docker" "http://10.0.0.1:80" 3ms`,
		`[2015-05-17T10:05:03.123Z] "GET / HTTP/1.1" 200 - 0 5 3 2 "192.0.2.7, 10.0.0.1" "curl" "id" "example.com" "10.0.0.1:80"`,
		`time=2015-05-17T10:05:03Z method=GET path="/a b" status=200 remote_addr=192.0.2.7`,
		`{"log":"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n","stream":"stdout","time":"2015-05-17T10:05:03Z"}`,
		`<13>1 2015-05-17T10:05:03Z h a 1 - [x y="]"] web-1  | "192.0.2.7, 10.0.0.1" 10.0.0.2 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1`,
		`<190>May 17 10:05:03 h nginx: 192.0.2.7, 10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-" "192.0.2.8"`,
	} {
		f.Add([]byte(seed), uint8(i+1))
		f.Add([]byte(seed), uint8(len(formats)))
	}
	f.Fuzz(func(t *testing.T, text []byte, format uint8) {
		calls := int64(0)
		trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		names := append(FormatNames(), "")
		opts := Options{Format: names[int(format)%len(names)], Trusted: trusted[:format>>7]}
		stats, err := Read("f", strings.NewReader(string(text)), opts, func(r *Record) error {
			calls++
			if r.Time < earliest || r.Time > latest || r.Status < 0 || r.Bytes < 0 {
				t.Errorf("%+v", r)
			}
			r.Header("x-a")
			r.Field("a.b.c")
			return nil
		})
		if stats.Lines != stats.Records+stats.Broken || stats.Records != calls || int64(len(stats.First)) != min(stats.Broken, shownBroken) {
			t.Errorf("%+v after %d calls, %v", stats, calls, err)
		}
	})
}

// Whatever a format string is, it is compiled or refused, and lines are read or broken.
func FuzzLogFormat(f *testing.F) {
	line := `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "a\x22\u00e9"`
	for _, format := range []string{
		`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`,
		`log_format main escape=json '{"t":"$msec",' "'a':$host$request_uri";`,
		`LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%!200,304{User-agent}i\"" combined`,
		`%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t %a:%{remote}p %U%q %^FB`,
	} {
		f.Add(format, line)
	}
	f.Fuzz(func(t *testing.T, format, line string) {
		l, err := compileFormat(format)
		if err != nil {
			return
		}
		var r Record
		names, _ := newNaming(nil)
		if (layouts{l.bound(names)}).parse([]byte(line), &r) == nil && (r.Time < earliest || r.Time > latest || r.Status < 0 || r.Bytes < 0) {
			t.Errorf("%q of %q: %+v", line, format, r)
		}
	})
}
