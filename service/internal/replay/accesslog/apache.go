package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
)

// letters are Apache's directives without an argument. Those without an entry here are in Record.Field by their name only.
var letters = map[string]part{
	"h": {name: "remote_host", set: setAddress, rank: rankHost},
	"a": {name: "remote_addr", set: setAddress, rank: rankClient},
	"u": {name: "remote_user", set: text(userOf)},
	"t": {name: "time_local", set: setTime, sample: "[" + sampleTime + "]", rank: rankTime},
	"r": {name: "request", set: setRequest, sample: sampleRequest},
	"m": {name: "request_method", set: setMethod},
	"U": {name: "uri", set: setTarget, path: true},
	"q": {name: "args", set: setQuery},
	"s": {name: "status", set: setStatus},
	"b": {name: "body_bytes_sent", set: setBytes},
	"B": {name: "body_bytes_sent", set: setBytes},
	"O": {name: "bytes_sent", set: otherBytes},
	"S": {name: "bytes_transferred"},
	"I": {name: "request_length"},
	"D": {name: "request_time_us", set: setTook},
	"T": {name: "request_time", set: otherDuration},
	"v": {name: "server_name", set: text(hostOf)},
	"V": {name: "host", set: text(hostOf)},
	"A": {name: "server_addr"},
	"f": {name: "request_filename"},
	"H": {name: "server_protocol"},
	"k": {name: "connection_requests"},
	"l": {name: "ident"},
	"L": {name: "log_id"},
	"p": {name: "server_port"},
	"P": {name: "pid"},
	"R": {name: "handler"},
	"X": {name: "connection_status"},
}

// named are the directives whose argument is a name, with the prefix of that name in Record.Field.
var named = map[string]string{
	"i": "http_", "o": "sent_http_", "C": "cookie_", "e": "env_", "n": "note_", "^ti": "trailer_", "^to": "sent_trailer_",
}

// headers are those of the request that set fields.
var headers = map[string]part{
	"http_x_forwarded_for": variables["http_x_forwarded_for"],
	"http_forwarded":       variables["http_forwarded"],
	"http_x_real_ip":       variables["http_x_real_ip"],
	"http_user_agent":      variables["http_user_agent"],
	"http_referer":         variables["http_referer"],
	"http_host":            variables["http_host"],
}

var (
	// A directive is % with conditions on the status, < or > for the first or last request, an argument, and a letter.
	directive = regexp.MustCompile(`%(?:!?[0-9]+(?:,[0-9]+)*|[<>])*(?:\{([^}]*)\})?(?:!?[0-9]+(?:,[0-9]+)*|[<>])*(\^[A-Za-z]{2}|[A-Za-z%])?`)
	configure = regexp.MustCompile(`^\s*(?:LogFormat|CustomLog\s+(?:"[^"]*"|\S+))\s+`)
	escapes   = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t")
)

// compileApache compiles the text of Apache's LogFormat: the directive as it is in a configuration, or the text alone.
func compileApache(format string) (*layout, error) {
	format = strings.TrimSpace(format)
	if at := configure.FindString(format); at != "" {
		format = format[len(at):]
		if format == "" || format[0] != '"' {
			return nil, errors.New("the text behind LogFormat has to be in quotation marks")
		}
	}
	if strings.HasPrefix(format, `"`) {
		if end := closing(format[1:]); end >= 0 && !strings.ContainsAny(format[end+2:], "%") {
			format = format[1 : end+1]
		}
	}
	format = strings.ReplaceAll(escapes.Replace(format), "%U%q", "%{target}U")
	l := &layout{}
	end := 0
	for _, at := range directive.FindAllStringSubmatchIndex(format, -1) {
		l.text(format[end:at[0]])
		end = at[1]
		text, argument, letter := format[at[0]:at[1]], "", ""
		if at[2] >= 0 {
			argument = format[at[2]:at[3]]
		}
		if at[4] >= 0 {
			letter = format[at[4]:at[5]]
		}
		if letter == "%" {
			l.text("%")
			continue
		}
		p, err := apachePart(argument, letter)
		if err != nil {
			return nil, fmt.Errorf("%s at %d: %w", text, at[0]+1, err)
		}
		if p.directive = text; argument == "target" && letter == "U" {
			p.directive = "%U%q"
		}
		l.add(p)
	}
	l.text(format[end:])
	if len(l.parts) == 0 {
		return nil, errors.New("it has no directives")
	}
	return l.build()
}

func apachePart(argument, letter string) (part, error) {
	if prefix, ok := named[letter]; ok {
		if argument == "" {
			return part{}, fmt.Errorf("a name in braces is missing, such as %%{NAME}%s", letter)
		}
		name := prefix + strings.ReplaceAll(strings.ToLower(argument), "-", "_")
		p := headers[name]
		p.name = name
		return p, nil
	}
	p, ok := letters[letter]
	switch {
	case !ok:
		return p, errors.New("Apache has no such directive")
	case argument == "":
		return p, nil
	case letter == "t":
		return apacheTime(argument)
	case letter == "a" && argument == "c":
		p.name, p.rank = "peer_addr", rankPeer
	case letter == "h" && argument == "c":
		p.rank = rankPeer
	case letter == "T" && argument == "ms", letter == "T" && argument == "us":
		p.name += "_" + argument
	case letter == "T" && argument == "s", letter == "p", letter == "P", letter == "U" && argument == "target":
	default:
		return p, fmt.Errorf("Apache has no %q for %%%s", argument, letter)
	}
	return p, nil
}

// apacheTime returns the part of a time in a form of strftime, or in one of Apache's own.
func apacheTime(form string) (part, error) {
	form = strings.TrimPrefix(strings.TrimPrefix(form, "begin:"), "end:")
	switch form {
	case "", "begin", "end":
		return letters["t"], nil
	case "sec":
		return part{name: "sec", set: setTime, rank: rankTime}, nil
	case "msec", "usec":
		return part{name: form, set: setTime, rank: rankFine}, nil
	case "msec_frac":
		return part{name: form, set: setFraction(1000), rank: rankFraction}, nil
	case "usec_frac":
		return part{name: form, set: setFraction(1), rank: rankFraction}, nil
	case "%s":
		return part{name: "sec", set: setTime, rank: rankTime}, nil
	}
	layout, err := strftime.Layout(form)
	if err != nil {
		return part{}, fmt.Errorf("the form of the time %q cannot be read: %w", form, err)
	}
	return part{name: "time_" + form, form: layout, sample: time.Unix(0, 0).UTC().Format(layout), rank: rankTime}, nil
}
