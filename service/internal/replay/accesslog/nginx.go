package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// variables are those of nginx that set fields. Any other is in Record.Field only.
var variables = map[string]part{
	"remote_addr":               {set: setAddress, rank: rankClient},
	"realip_remote_addr":        {set: setAddress, rank: rankPeer},
	"proxy_protocol_addr":       {set: setAddress, rank: rankPeer},
	"http_x_forwarded_for":      {set: text(forwardedOf), list: true},
	"proxy_add_x_forwarded_for": {set: text(forwardedOf), list: true},
	"http_forwarded":            {set: unset(forwardedOf), list: true},
	"http_x_real_ip":            {set: unset(forwardedOf)},
	"remote_user":               {set: text(userOf)},
	"time_local":                {set: setTime, sample: sampleTime, rank: rankTime},
	"time_iso8601":              {set: setTime, rank: rankTime},
	"msec":                      {set: setTime, rank: rankFine},
	"request":                   {set: setRequest, sample: sampleRequest},
	"request_method":            {set: setMethod},
	"request_uri":               {set: setTarget, path: true},
	"uri":                       {set: setTarget, path: true},
	"document_uri":              {set: setTarget, path: true},
	"args":                      {set: setQuery},
	"query_string":              {set: setQuery},
	"status":                    {set: setStatus},
	"body_bytes_sent":           {set: setBytes},
	"bytes_sent":                {set: otherBytes},
	"request_time":              {set: setTook},
	"upstream_response_time":    {set: otherDuration, list: true},
	"upstream_addr":             {list: true},
	"upstream_status":           {list: true},
	"host":                      {set: text(hostOf)},
	"http_host":                 {set: unset(hostOf)},
	"server_name":               {set: unset(hostOf)},
	"http_user_agent":           {set: text(agentOf), sample: anyText},
	"http_referer":              {set: text(refererOf)},
}

var (
	variable = regexp.MustCompile(`\$(?:([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})`)
	merged   = strings.NewReplacer("$uri$is_args$args", "$request_uri", "$document_uri$is_args$args", "$request_uri",
		"$uri$is_args$query_string", "$request_uri")
)

// compileVariables compiles a format string with variables of a table.
func compileVariables(format string, table map[string]part) (*layout, error) {
	format = merged.Replace(format)
	l := &layout{}
	end := 0
	for _, at := range variable.FindAllStringSubmatchIndex(format, -1) {
		l.text(format[end:at[0]])
		end = at[1]
		p := part{}
		if at[2] >= 0 {
			p.name = format[at[2]:at[3]]
		} else {
			p.name = format[at[4]:at[5]]
		}
		if known, ok := table[p.name]; ok {
			known.name = p.name
			p = known
		}
		p.directive = format[at[0]:at[1]]
		l.add(p)
	}
	l.text(format[end:])
	if len(l.parts) == 0 {
		return nil, errors.New("it has no variables")
	}
	return l.build()
}

// text adds text behind the last value.
func (l *layout) text(s string) {
	if n := len(l.parts); n > 0 {
		l.parts[n-1].after += s
	} else {
		l.before += s
	}
}

// add adds a value. An address and the port behind it are one, because an address of IPv6 has colons itself.
func (l *layout) add(p part) {
	if n := len(l.parts); n > 0 {
		before := &l.parts[n-1]
		if strings.HasSuffix(p.name, "_port") && before.after == ":" && before.rank > 0 && before.rank <= rankClient {
			set := before.set
			before.directive, before.after = before.directive+":"+p.directive, ""
			before.set = func(r *Record, s string) error {
				if i := strings.LastIndexByte(s, ':'); i > 0 {
					s = s[:i]
				}
				return set(r, s)
			}
			return
		}
	}
	l.parts = append(l.parts, p)
}

var logFormat = regexp.MustCompile(`^\s*log_format\s+(\S+)(\s+escape=\w+)?\s+`)

// compileNginx compiles the text of nginx's log_format: the directive as it is in a configuration, its strings, or the text
// alone.
func compileNginx(format string) (*layout, error) {
	directive := logFormat.FindString(format)
	rest := strings.TrimSpace(format[len(directive):])
	if directive == "" && (rest == "" || rest[0] != '\'' && !strings.HasSuffix(rest, ";")) {
		return compileVariables(rest, variables)
	}
	var joined strings.Builder
	for rest = strings.TrimSpace(strings.TrimSuffix(rest, ";")); rest != ""; rest = strings.TrimSpace(rest) {
		quote := rest[0]
		if quote == '#' { // a comment
			_, rest, _ = strings.Cut(rest, "\n")
			continue
		}
		if quote != '\'' && quote != '"' {
			return nil, fmt.Errorf("the text of log_format continues without quotation marks at %q", first(rest, 20))
		}
		end := 1
		for ; end < len(rest) && rest[end] != quote; end++ {
			if rest[end] == '\\' && end+1 < len(rest) && strings.IndexByte(`"'\`, rest[end+1]) >= 0 {
				end++
			}
			joined.WriteByte(rest[end])
		}
		if end >= len(rest) {
			return nil, fmt.Errorf("the string that begins with %q has no end", first(rest, 20))
		}
		rest = rest[end+1:]
	}
	return compileVariables(joined.String(), variables)
}

func first(s string, n int) string { return s[:min(len(s), n)] }
