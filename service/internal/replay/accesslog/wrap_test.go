package accesslog

import (
	"testing"
)

const wrappedLine = `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1 "-" "curl"`

// Whatever stands around a line, the client and the path are those of the line, and messages of others are broken. Package
// replay has more, of real programs.
func TestWrappingsAreTakenOff(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"CRI":                        {"2015-05-17T10:05:03.123456789Z stdout F starting up\n2015-05-17T10:05:03.123456789Z stdout F " + wrappedLine, "CRI (containerd, CRI-O)"},
		"CRI with a zone":            {"2015-05-17T12:05:03.123456789+02:00 stderr F:x " + wrappedLine, "CRI (containerd, CRI-O)"},
		"Fluent Bit":                 {`{"log":"192.0.2.7 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 1 \"-\" \"curl\"","kubernetes":{"pod_name":"web"}}`, "Docker's JSON"},
		"syslog without a tag":       {"May 17 10:05:03 web " + wrappedLine, "syslog (RFC 3164)"},
		"syslog without a host":      {"<134>May 17 10:05:03 nginx[12]: " + wrappedLine, "syslog (RFC 3164)"},
		"syslog with RFC 3339":       {"2015-05-17T10:05:03.123456+00:00 web nginx: " + wrappedLine, "syslog (RFC 3164)"},
		"RFC 5424":                   {`<190>1 2015-05-17T10:05:03.1Z web nginx 12 - [a@1 b="]\"" c="d"][e] ` + "\ufeff" + wrappedLine, "syslog (RFC 5424)"},
		"syslog with a length":       {"108 <190>May 17 10:05:03 web nginx: " + wrappedLine, "syslog (RFC 3164)"},
		"RFC 5424 without priority":  {"1 2015-05-17T10:05:03.1Z web nginx - - - " + wrappedLine, "syslog (RFC 5424)"},
		"compose, coloured":          {"\x1b[36mweb-1  | \x1b[0m" + wrappedLine, "names of containers (compose)"},
		"kubectl":                    {"[pod/web-5d8f/nginx] " + wrappedLine, "names of pods (kubectl --prefix)"},
		"docker logs -t":             {"2015-05-17T10:05:03.123456789Z " + wrappedLine, "a time before each line"},
		"syslog in CRI":              {"2015-05-17T10:05:03.1Z stdout F <134>May 17 10:05:03 nginx[12]: " + wrappedLine, "CRI (containerd, CRI-O) around syslog (RFC 3164)"},
		"a time in compose":          {"web-1  | 2015-05-17T10:05:03.1Z " + wrappedLine, "names of containers (compose) around a time before each line"},
		"compose in syslog, at last": {"May 17 10:05:03 web docker[7]: web-1  | " + wrappedLine, "syslog (RFC 3164) around names of containers (compose)"},
	} {
		all, stats := read(t, tt.text+"\n", Options{})
		if len(all) != 1 || all[0].RemoteAddress != "192.0.2.7" || all[0].Path != "/a" || all[0].UserAgent != "curl" {
			t.Errorf("%s: %+v, %+v", name, all, stats)
		}
		if stats.Wrapping != tt.want || stats.Format != "combined" {
			t.Errorf("%s: %q around %q, want %q", name, stats.Wrapping, stats.Format, tt.want)
		}
		// A format string finds the same wrapping.
		all, stats = read(t, tt.text+"\n", Options{Format: `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"`})
		if len(all) != 1 || all[0].RemoteAddress != "192.0.2.7" || stats.Wrapping != tt.want {
			t.Errorf("%s, with a format string: %+v, %+v", name, all, stats)
		}
	}
}
