package replay

import (
	"regexp"
	"strings"
)

// identifier is a segment of a path that names one of many things: a number, a UUID, or a hash.
var identifier = regexp.MustCompile(`^([0-9]+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]*[0-9][0-9a-fA-F]*)$`)

// shortestHash is the fewest digits of a hash. A shorter word of hexadecimal digits could be a name.
const shortestHash = 8

// template returns the name of a route, a method and a path in which {…} stands for any text. A pattern is one of
// [Expressions].Routes, whose own method is left out: GET stands for HEAD there, too.
func template(method, path string, pattern bool) string {
	if pattern {
		if _, rest, ok := strings.Cut(path, " "); ok {
			path = strings.TrimLeft(rest, " ")
		}
		if exact, ok := strings.CutSuffix(path, "{$}"); ok {
			path = exact
		} else if strings.HasSuffix(path, "/") { // all below it, too
			path += "{...}"
		}
		return strings.TrimSpace(method + " " + path)
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if identifier.MatchString(s) && (len(s) >= shortestHash || strings.Trim(s, "0123456789") == "") {
			segments[i] = "{id}"
		}
	}
	return strings.TrimSpace(method + " " + strings.Join(segments, "/"))
}
