package accesslog

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestFormatStringsOfServers(t *testing.T) {
	at := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC)
	a := Record{RemoteAddress: "192.0.2.7", Method: "GET", Path: "/a", Query: "b", Status: 200}
	with := func(change func(*Record)) Record {
		r := a
		change(&r)
		return r
	}
	for name, tt := range map[string]struct {
		format, line string
		want         Record
		at           time.Time
	}{
		"nginx as in a configuration": {
			"log_format  main  '$remote_addr - $remote_user [$time_local] \"$request\" '\n    '$status $body_bytes_sent \"$http_referer\" '  # the user agent\n    '\"$http_user_agent\" \"$http_x_forwarded_for\"';",
			`192.0.2.7 - u [17/May/2015:12:05:03 +0200] "GET /a?b HTTP/1.1" 200 7 "-" "say \x22hi\x22" "192.0.2.9, 10.0.0.1"`,
			with(func(r *Record) {
				r.User, r.Bytes, r.UserAgent, r.ForwardedFor = "u", 7, `say "hi"`, "192.0.2.9, 10.0.0.1"
			}), at,
		},
		"nginx, lists and several times": {
			`$time_iso8601 $msec ${remote_addr}:$remote_port $upstream_addr $upstream_response_time $request_time $status $request_method $scheme://$host$uri$is_args$args`,
			`2015-05-17T10:05:03+00:00 1431857103.250 192.0.2.7:4711 10.0.0.1:80, 10.0.0.2:80 0.100, 0.200 0.300 200 GET https://example.com/a?b`,
			with(func(r *Record) { r.Duration, r.Host = 0.3, "example.com" }), at.Add(250 * time.Millisecond),
		},
		"nginx, an address of IPv6 with its port": {
			`$msec $remote_addr:$remote_port $request_method $request_uri $status`, `1431857103.000 2001:db8::7:4711 GET /a?b 200`,
			with(func(r *Record) { r.RemoteAddress = "2001:db8::7" }), at,
		},
		"nginx, JSON": {
			`log_format j escape=json '{"t":"$time_iso8601","who":"$remote_addr","r":"$request","s":$status,"ua":"$http_user_agent"}';`,
			`{"t":"2015-05-17T10:05:03+00:00","who":"192.0.2.7","r":"GET /a?b HTTP/1.1","s":200,"ua":"say \"hi\" \u00e9"}`,
			with(func(r *Record) { r.UserAgent = `say "hi" é` }), at,
		},
		"nginx, forwarded addresses first": {
			`$http_x_forwarded_for $remote_addr [$time_local] "$request" $status`, `192.0.2.7, 192.0.2.8 10.0.0.1 [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200`,
			with(func(r *Record) { r.ForwardedFor = "192.0.2.7, 192.0.2.8" }), at,
		},
		"nginx, the client alone in X-Forwarded-For": {
			`[$time_local] "$request" $status "$http_x_forwarded_for"`, `[17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 "192.0.2.7"`,
			with(func(r *Record) { r.ForwardedFor = "192.0.2.7" }), at,
		},
		"Apache as in a configuration": {
			`LogFormat "%v:%p %h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"" vhost_combined`,
			`example.com:80 192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 9 "http://e/" "say \"hi\""`,
			with(func(r *Record) { r.Bytes, r.Host, r.Referer, r.UserAgent = 9, "example.com", "http://e/", `say "hi"` }), at,
		},
		"Apache, the peer and the client": {
			`%{c}a %a %{X-Forwarded-For}i %t "%m %U%q %H" %s %B %D`, `10.0.0.1 192.0.2.7 192.0.2.9, 10.0.0.1 [17/May/2015:10:05:03 +0000] "GET /a?b HTTP/1.1" 200 0 1234`,
			with(func(r *Record) { r.ForwardedFor, r.Duration = "192.0.2.9, 10.0.0.1", 1234 }), at,
		},
		"Apache, forms of the time": {
			`[%{%d/%b/%Y %T}t.%{msec_frac}t %{%z}t] %a "%r" %>s %!200,304{User-Agent}i`, `[17/May/2015 12:05:03.250 +0200] 192.0.2.7 "GET /a?b HTTP/1.1" 200 -`,
			a, at.Add(250 * time.Millisecond),
		},
		"Apache, microseconds since 1970": {
			`%{begin:usec}t %h "%r" %<s 100%% %{us}T`, `1431857103000001 192.0.2.7 "GET /a?b HTTP/1.1" 200 100% 77`,
			with(func(r *Record) { r.Duration = 77 }), at.Add(time.Microsecond),
		},
		"nginx, the query apart": {
			`[$time_local] $remote_addr "$request_method" $uri?$args $status`, `[17/May/2015:10:05:03 +0000] 192.0.2.7 "GET" /a?b 200`, a, at,
		},
		"Apache, a time with spaces": {
			`%{%Y-%m-%d %H:%M:%S}t %h "%r" %s`, `2015-05-17 10:05:03 192.0.2.7 "GET /a?b HTTP/1.1" 200`, a, at,
		},
	} {
		all, stats := read(t, "a line of another program\n"+tt.line+"\n", Options{Format: tt.format})
		if len(all) != 1 || stats.Broken != 1 {
			t.Errorf("%s: %+v", name, stats)
			continue
		}
		same(t, name, all[0], tt.want, tt.at)
	}
}

func TestFormatStringsThatCannotBeRead(t *testing.T) {
	for format, want := range map[string]string{
		"main":                                "and is none of json, combined, haproxy",
		"hello":                               "neither nginx's $variables nor Apache's %directives",
		`$remote_addr $status`:                "no time of the request",
		`$msec$remote_addr`:                   "nothing separates $msec from $remote_addr",
		`$msec $http_user_agent $status`:      "$http_user_agent may contain spaces",
		`log_format main '$msec ';'$status';`: "without quotation marks at",
		`log_format main '$msec $status;`:     "has no end",
		`%t %h %Y`:                            `%Y at 7: Apache has no such directive`,
		`%t %h %{x}q`:                         `%{x}q at 7: Apache has no "x" for %q`,
		`%t %h %i`:                            "a name in braces is missing",
		`%t %h 100%`:                          "% at 10",
		`%t %h %{usec_frac}t`:                 "have to follow each other",
		`%{%Q}t %h`:                           `the form of the time "%Q" cannot be read`,
		`LogFormat combined`:                  "has to be in quotation marks",
	} {
		if _, err := compileFormat(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", format, err, want)
		}
	}
}

// Messages of the server between requests are no requests, whether they come first or later.
func TestMessagesInTheFormatOfRequests(t *testing.T) {
	message := `{"level":"info","ts":1431857103.5,"msg":"using config"}` + "\n"
	request := `{"level":"info","ts":1431857103.5,"logger":"http.log.access","request":{"remote_ip":"192.0.2.7","method":"GET","uri":"/a"},"status":200}` + "\n"
	all, stats := read(t, message+request+message, Options{})
	if len(all) != 1 || stats.Messages != 2 || stats.Broken != 0 || stats.Format != "json (Caddy)" {
		t.Errorf("%d records, %+v", len(all), stats)
	}
	// Caddy logs a request that fails in its error log too, and nginx writes errors among the requests of a container.
	again := strings.Replace(strings.Replace(request, "access", "error", 1), `"ts"`, `"msg":"refused","ts"`, 1)
	if all, stats = read(t, request+again+"2026/11/04 10:00:00 [error] 7#7: *1 open() failed\n", Options{}); len(all) != 1 || stats.Messages != 2 || stats.Broken != 0 {
		t.Errorf("%d records, %+v", len(all), stats)
	}
	if _, stats = read(t, request+`{"ts":1431857103.5,"who":"192.0.2.7"}`, Options{}); stats.Messages != 0 || stats.Broken != 1 {
		t.Errorf("a line that says nothing: %+v", stats)
	}
	// A program may start in JSON, and log requests as text.
	all, stats = read(t, strings.Repeat(message, 20)+wrappedLine+"\n", Options{})
	if len(all) != 1 || stats.Broken != 20 || stats.Format != "combined" {
		t.Errorf("%d records, %+v", len(all), stats)
	}
}

func TestPeersThatForwardAreCounted(t *testing.T) {
	var text strings.Builder
	for i := range 50 {
		text.WriteString(strings.ReplaceAll(`10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "192.0.2.N"`+"\n", "N", string(rune('0'+i%10))))
	}
	_, stats := read(t, text.String(), Options{})
	if len(stats.Peers) != 1 || stats.Peers["10.0.0.1"] != 50 {
		t.Errorf("%+v", stats)
	}
	other := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")} // another proxy than that of the log
	if _, stats = read(t, text.String(), Options{Trusted: other}); stats.Peers["10.0.0.1"] != 50 {
		t.Errorf("%+v", stats)
	}
	all, stats := read(t, text.String(), Options{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if len(stats.Notes) != 0 || len(stats.Peers) != 0 || all[3].RemoteAddress != "192.0.2.3" || !strings.Contains(stats.Client, "trusted") {
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

// The client is found wherever a proxy names it.
func TestClientsInOtherFields(t *testing.T) {
	trusting := Options{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	haproxy := `10.0.0.1:5000 [17/May/2015:10:05:03.000] fe be/s1 0/0/1/2/3 200 100 - - ---- 1/1/1/1/0 0/0 {%s} "GET / HTTP/1.1"`
	for field, client := range map[string]string{
		`"http_cf_connecting_ip":"192.0.2.7"`: "192.0.2.7", `"X-Forwarded-For":"192.0.2.9, 192.0.2.7"`: "192.0.2.7", `"client_ip":"192.0.2.7"`: "192.0.2.7",
		`"http_forwarded":"for=192.0.2.9, For=\"[2001:db8::7]:80\";proto=https"`: "2001:db8::7", `"headers":{"x-forwarded-for":"192.0.2.7"}`: "192.0.2.7",
		"example.com|192.0.2.7|": "192.0.2.7", "curl/7.0|example.com": "10.0.0.1", `"client_ip":"shop"`: "10.0.0.1",
	} {
		text := `{"msec":"1431857103.0","remote_addr":"10.0.0.1","status":200,` + field + `}`
		if strings.Contains(field, "|") {
			text = fmt.Sprintf(haproxy, field)
		}
		all, stats := read(t, text, trusting)
		_, alone := read(t, text, Options{})
		if len(all) != 1 || all[0].RemoteAddress != client || len(stats.Peers) != 0 || (alone.Peers["10.0.0.1"] == 1) != (client != "10.0.0.1") {
			t.Errorf("%s: %+v, %+v, %+v", field, all, stats, alone)
		}
	}
}

const wrappedLine = `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1 "-" "curl"`

// A peer is a proxy unless it is alone in the list, or the client in it that the server found already.
func TestPeersThatForwardForOthers(t *testing.T) {
	for list, proxied := range map[string]bool{
		"-": false, "192.0.2.7": false, "192.0.2.7, 10.0.0.1": false, "10.0.0.9, 192.0.2.7:4711, 10.0.0.1": false,
		"10.0.0.1": true, "10.0.0.1, 10.0.0.2": true, "10.0.0.1, 192.0.2.7": true, "10.0.0.9, 10.0.0.1, 192.0.2.7": true,
	} {
		_, stats := read(t, `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1 "-" "-" "`+list+`"`, Options{})
		if stats.Records != 1 || (stats.Peers["192.0.2.7"] == 1) != proxied || len(stats.Peers) > 1 {
			t.Errorf("%s: %v", list, stats.Peers)
		}
	}
}
