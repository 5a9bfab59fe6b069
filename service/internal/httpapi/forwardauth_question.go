package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/service/internal/wire"
)

// A question is the configuration of forward-auth that the URL has, the same for all clients.
type question struct {
	domain      string
	descriptors []descriptor
	deny        int               // the status of a refusal
	fields      httplimit.Dialect // of the RateLimit fields
	path        httplimit.PathFold
}

// A descriptor says which entries a request is looked up with, one level each.
type descriptor []source

// A source is where an entry of a descriptor comes from.
type source struct {
	key   string
	value func(*proxied) (string, error)
	fold  folding // nil if a value in the configuration can be any
}

// denyStatuses are the statuses that a refusal can have. nginx takes 401 and 403 alone.
var denyStatuses = map[string]int{
	"401": http.StatusUnauthorized,
	"403": http.StatusForbidden,
	"429": http.StatusTooManyRequests,
}

// parseQuestion reads the parameters: domain, descriptor once or more, deny, fields and path.
func parseQuestion(query string) (*question, error) {
	given, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the parameters of the URL: %w", err)
	}
	q := &question{deny: http.StatusTooManyRequests, path: httplimit.KeepCase} // rules may have capital letters
	for _, name := range slices.Sorted(maps.Keys(given)) {
		values := given[name]
		if name != "descriptor" && len(values) > 1 {
			return nil, fmt.Errorf("the parameter %s is there %d times: give it once", wire.Clip(name), len(values))
		}
		switch name {
		case "domain":
			q.domain = values[0]
		case "deny":
			if q.deny = denyStatuses[values[0]]; q.deny == 0 {
				return nil, fmt.Errorf("deny=%s: it is 401, 403 or 429", wire.Clip(values[0]))
			}
		case "fields":
			if err := q.fields.UnmarshalText([]byte(values[0])); err != nil {
				return nil, fmt.Errorf("fields=%s: %w", wire.Clip(values[0]), err)
			}
		case "path":
			if err := q.path.UnmarshalText([]byte(values[0])); err != nil {
				return nil, fmt.Errorf("path=%s: %w", wire.Clip(values[0]), err)
			}
		case "descriptor":
			for _, text := range values {
				d, err := parseDescriptor(text)
				if err != nil {
					return nil, err
				}
				q.descriptors = append(q.descriptors, d)
			}
		default:
			return nil, fmt.Errorf("unknown parameter %s: there are domain, descriptor, deny, fields and path", wire.Clip(name))
		}
	}
	switch {
	case q.domain == "":
		return nil, errors.New("the parameter domain is missing: ask for /v1/forward-auth?domain=demo&descriptor=remote_address")
	case len(q.descriptors) == 0:
		return nil, errors.New("the parameter descriptor is missing: it says what a request is counted by, such as descriptor=remote_address")
	case len(q.descriptors) > sash.MaxSubjects:
		return nil, fmt.Errorf("%d descriptors: one decision spans at most %d", len(q.descriptors), sash.MaxSubjects)
	}
	return q, nil
}

// parseDescriptor reads entries between commas: a word for a value that the proxy sends, header:NAME, or KEY=VALUE.
func parseDescriptor(text string) (descriptor, error) {
	entries := strings.Split(text, ",")
	if len(entries) > wire.MaxEntries {
		return nil, fmt.Errorf("a descriptor with %d entries: there may be at most %d", len(entries), wire.MaxEntries)
	}
	d := make(descriptor, len(entries))
	for i, entry := range entries {
		key, fixed, isFixed := strings.Cut(entry, "=")
		header, isHeader := strings.CutPrefix(entry, "header:")
		switch {
		case proxiedValues[entry] != nil:
			d[i] = source{entry, proxiedValues[entry], foldings[entry]}
		case isHeader && header != "":
			d[i] = source{strings.ToLower(header), func(p *proxied) (string, error) { return p.sole(header) }, nil}
		case isFixed && key != "" && !isHeader:
			d[i] = source{key, func(*proxied) (string, error) { return fixed, nil }, nil}
		default:
			return nil, fmt.Errorf("descriptor=%s: the entry %s is none: it is %s, header:NAME, or KEY=VALUE for a fixed one",
				wire.Clip(text), strconv.Quote(wire.Clip(entry)), strings.Join(slices.Sorted(maps.Keys(proxiedValues)), ", "))
		}
	}
	return d, nil
}
