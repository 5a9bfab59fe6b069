package accesslog

import (
	"net/netip"
	"strings"
	"testing"
)

// Messages of the server between requests are no requests, whether they come first or later.
func TestMessagesInTheFormatOfRequests(t *testing.T) {
	message := `{"level":"info","ts":1431857103.5,"msg":"using config"}` + "\n"
	request := `{"level":"info","ts":1431857103.5,"logger":"http.log.access","request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a"},"status":200}` + "\n"
	all, stats := read(t, message+request+message, Options{})
	if len(all) != 1 || stats.Broken != 2 || stats.Format != "json (Caddy)" {
		t.Errorf("%d records, %+v", len(all), stats)
	}
	// A program may start in JSON, and log requests as text.
	all, stats = read(t, strings.Repeat(message, 20)+wrappedLine+"\n", Options{})
	if len(all) != 1 || stats.Broken != 20 || stats.Format != "combined" {
		t.Errorf("%d records, %+v", len(all), stats)
	}
}

func TestALineBeginsWithForwardedAddresses(t *testing.T) {
	const rest = ` - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl"`
	for line, want := range map[string]struct{ alone, trusting string }{
		`192.0.2.7, 192.0.2.8, 10.0.0.1` + rest:     {"192.0.2.7", "192.0.2.8"},
		`192.0.2.7, 192.0.2.8 10.0.0.1` + rest:      {"192.0.2.7", "192.0.2.8"},
		`"192.0.2.7, 192.0.2.8" 10.0.0.1` + rest:    {"192.0.2.7", "192.0.2.8"},
		`192.0.2.7 10.0.0.1` + rest:                 {"192.0.2.7", "192.0.2.7"},
		`- 10.0.0.1` + rest:                         {"10.0.0.1", "10.0.0.1"},
		`-` + rest:                                  {"", ""},
		`192.0.2.7` + rest:                          {"192.0.2.7", "192.0.2.7"},
		`unknown, 192.0.2.8, 10.0.0.1` + rest:       {"192.0.2.8", "192.0.2.8"},
		`10.0.0.1` + rest + ` "192.0.2.7, 1.2.3.4"`: {"10.0.0.1", "1.2.3.4"},
		`1.2.3.4` + rest + ` "192.0.2.7"`:           {"1.2.3.4", "1.2.3.4"},
		`10.0.0.1` + rest + ` "-"`:                  {"10.0.0.1", "10.0.0.1"},
	} {
		for trusted, want := range map[string]string{"": want.alone, "10.0.0.0/8": want.trusting} {
			opts := Options{}
			if trusted != "" {
				opts.Trusted = []netip.Prefix{netip.MustParsePrefix(trusted)}
			}
			if all, stats := read(t, line, opts); len(all) != 1 || all[0].RemoteAddress != want || all[0].Path != "/a" {
				t.Errorf("%q, trusting %q: %+v, %+v; want %s", line, trusted, all, stats, want)
			}
		}
	}
}

func TestFewPeersWithManyClientsAreNoted(t *testing.T) {
	var text strings.Builder
	for i := range 50 {
		text.WriteString(strings.ReplaceAll(`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "192.0.2.N"`+"\n", "N", string(rune('0'+i%10))))
	}
	_, stats := read(t, text.String(), Options{})
	if len(stats.Notes) != 1 || !strings.Contains(stats.Notes[0], "50 of 50 lines") {
		t.Errorf("%+v", stats)
	}
	all, stats := read(t, text.String(), Options{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if len(stats.Notes) != 0 || all[3].RemoteAddress != "192.0.2.3" || !strings.Contains(stats.Client, "trusted") {
		t.Errorf("%+v", stats)
	}
	_, stats = read(t, wrappedLine, Options{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if len(stats.Notes) != 1 || !strings.Contains(stats.Notes[0], "No line has forwarded addresses") {
		t.Errorf("%+v", stats)
	}
}

func TestTheFinestTimeThatCanBeReadCounts(t *testing.T) {
	for text, want := range map[string]int64{
		`{"time":"2015-05-17T10:05:03Z","msec":"1431857103.250","status":200}`:                          1431857103_250000,
		`{"time":"2015-05-17T10:05:03Z","@timestamp":"2015-05-17T10:05:09.5Z","status":200}`:            1431857103_000000,
		`{"time":"yesterday","msec":"250","ts":1431857103.5,"status":200}`:                              1431857103_500000,
		`{"level":"info","remote_host":"192.0.2.7","date":"2015-05-17T10:05:03Z","usec":"","path":"/"}`: 1431857103_000000,
	} {
		if all, _ := read(t, text, Options{}); len(all) != 1 || all[0].Time != want {
			t.Errorf("%s: %+v", text, all)
		}
	}
	named := Options{Fields: map[string]string{"time": "time"}} // what a user names counts
	if all, _ := read(t, `{"time":"2015-05-17T10:05:03Z","msec":"1431857103.250","status":200}`, named); all[0].Time != 1431857103_000000 {
		t.Errorf("%+v", all)
	}
}
