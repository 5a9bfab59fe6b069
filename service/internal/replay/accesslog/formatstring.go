package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ncruces/go-strftime"
)

var (
	logFormat = regexp.MustCompile(`^\s*log_format\s+(\S+)(\s+escape=\w+)?\s+`)
	variable  = regexp.MustCompile(`\$(?:([A-Za-z0-9_]+)|\{([A-Za-z0-9_]+)\})`)
	quoted    = regexp.MustCompile(`^(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")`)
	escaped   = regexp.MustCompile(`\\(["'\\])`)
	merged    = strings.NewReplacer("$uri$is_args$args", "$request_uri", "$document_uri$is_args$args", "$request_uri",
		"$uri$is_args$query_string", "$request_uri")

	// A directive is % with conditions on the status, < or > for the first or last request, an argument, and a letter.
	directive = regexp.MustCompile(`%(?:!?[0-9]+(?:,[0-9]+)*|[<>])*(?:\{([^}]*)\})?(?:!?[0-9]+(?:,[0-9]+)*|[<>])*(\^[A-Za-z]{2}|[A-Za-z%])?`)
	configure = regexp.MustCompile(`^\s*(?:LogFormat|CustomLog\s+(?:"[^"]*"|\S+))\s+`)
	escapes   = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\n`, "\n", `\t`, "\t")
)

func compileFormat(format string) (*layout, error) {
	l := &layout{name: "the given log format"}
	var err error
	switch {
	case configure.MatchString(format):
		err = l.apache(format)
	case logFormat.MatchString(format), variable.MatchString(format):
		err = l.nginx(format)
	case strings.Contains(format, "%"):
		err = l.apache(format)
	default:
		err = fmt.Errorf("it has neither nginx's $variables nor Apache's %%directives, and is none of %s", strings.Join(FormatNames(), ", "))
	}
	if l.least = len(l.parts); err == nil {
		err = l.build()
	}
	if err != nil {
		return nil, fmt.Errorf("the log format %q: %w", first(format, shownText), err)
	}
	return l, nil
}

// nginx parses an nginx log_format: the directive as in a configuration, its strings, or the text alone.
func (l *layout) nginx(format string) error {
	directive := logFormat.FindString(format)
	rest := strings.TrimSpace(format[len(directive):])
	if directive == "" && (rest == "" || rest[0] != '\'' && !strings.HasSuffix(rest, ";")) {
		l.variables(rest)
		return nil
	}
	joined := ""
	for rest = strings.TrimSpace(strings.TrimSuffix(rest, ";")); rest != ""; rest = strings.TrimSpace(rest) {
		at := quoted.FindStringIndex(rest)
		switch {
		case at != nil:
			joined += escaped.ReplaceAllString(rest[1:at[1]-1], "$1")
			rest = rest[at[1]:]
		case rest[0] == '#': // a comment
			_, rest, _ = strings.Cut(rest, "\n")
		case rest[0] == '\'' || rest[0] == '"':
			return fmt.Errorf("the string that begins with %q has no end", first(rest, 20))
		default:
			return fmt.Errorf("the text of log_format continues without quotation marks at %q", first(rest, 20))
		}
	}
	l.variables(joined)
	return nil
}

func (l *layout) variables(format string) {
	format = merged.Replace(format)
	end := 0
	for _, at := range variable.FindAllStringSubmatchIndex(format, -1) {
		l.text(format[end:at[0]])
		end = at[1]
		l.add(part{name: strings.Trim(format[at[0]:at[1]], "${}"), directive: format[at[0]:at[1]]})
	}
	l.text(format[end:])
}

var apacheNames = pairs("apache")

// apache parses an Apache LogFormat: the directive as in a configuration, or the text alone.
func (l *layout) apache(format string) error {
	format = strings.TrimSpace(format)
	if at := configure.FindString(format); at != "" {
		format = format[len(at):]
		if format == "" || format[0] != '"' {
			return errors.New("the text behind LogFormat has to be in quotation marks")
		}
	}
	if strings.HasPrefix(format, `"`) {
		if end := closing(format[1:]); end >= 0 && !strings.ContainsAny(format[end+2:], "%") {
			format = format[1 : end+1]
		}
	}
	format = strings.ReplaceAll(escapes.Replace(format), "%U%q", "%{target}U")
	end := 0
	for _, at := range directive.FindAllStringSubmatchIndex(format, -1) {
		l.text(format[end:at[0]])
		end = at[1]
		argument, letter := "", ""
		if at[2] >= 0 {
			argument = format[at[2]:at[3]]
		}
		if at[4] >= 0 {
			letter = format[at[4]:at[5]]
		}
		if err := l.letter(format[at[0]:at[1]], argument, letter); err != nil {
			return fmt.Errorf("%s at %d: %w", format[at[0]:at[1]], at[0]+1, err)
		}
	}
	l.text(format[end:])
	return nil
}

func (l *layout) letter(directive, argument, letter string) error {
	prefix, isNamed := apacheNames["{}"+letter]
	p := part{directive: directive, name: apacheNames[letter]}
	start := "" // without the prefix "end:", a time is the start
	if letter == "t" {
		of, form, _ := strings.Cut(argument, ":")
		if of == "begin" || of == "end" {
			argument = form
		}
		if of != "end" {
			start = "start_"
		}
	}
	other, known := apacheNames["{"+argument+"}"+letter]
	p.name, other = start+p.name, start+other
	switch {
	case letter == "%":
		l.text("%")
		return nil
	case isNamed && argument == "":
		return fmt.Errorf("a name in braces is missing, such as %%{NAME}%s", letter)
	case isNamed:
		p.name = prefix + strings.ReplaceAll(strings.ToLower(argument), "-", "_")
	case p.name == "":
		return errors.New("Apache has no such directive")
	case letter == "t" && argument == "":
		l.text("[")
		l.add(p)
		l.text("]")
		return nil
	case known:
		p.name = other
	case letter == "t":
		return l.time(p, argument)
	case argument != "" && letter != "p" && letter != "P":
		return fmt.Errorf("Apache has no %q for %%%s", argument, letter)
	}
	l.add(p)
	return nil
}

// time adds a part of the time, in a strftime form, or a fraction of it. Adjacent parts become one value.
func (l *layout) time(p part, form string) (err error) {
	fraction := map[string]string{"msec_frac": "000", "usec_frac": "000000"}[form]
	if p.time = fraction; fraction == "" {
		if p.time, err = strftime.Layout(form); err != nil {
			return fmt.Errorf("the form of the time %q cannot be read: %w", form, err)
		}
	}
	if n := len(l.parts); n > 0 && l.parts[n-1].time != "" {
		before := &l.parts[n-1]
		before.directive += before.after + p.directive
		before.time += before.after + p.time
		before.after = ""
		return nil
	} else if n > 0 && strings.HasSuffix(l.parts[n-1].name, "sec") && l.parts[n-1].after == "." && fraction != "" {
		l.parts[n-1].after = "" // digits after the seconds since 1970
		return nil
	}
	if fraction != "" || slices.ContainsFunc(l.parts, func(p part) bool { return p.time != "" }) {
		return errors.New("the parts of the time have to follow each other, a fraction behind the seconds")
	}
	p.name = strings.Replace(p.name, "time_local", "time", 1)
	l.add(p)
	return nil
}
