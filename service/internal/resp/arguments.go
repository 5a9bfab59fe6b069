package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// An asking is the arguments of a command that asks for units: what it names first, and options in any order, each a word
// with its values. A command has ENTRY, and then it names a domain, or LIMIT, and then it names a key.
type asking struct {
	name    string
	entries []config.Entry // ENTRY key value
	limits  []sash.Limit   // LIMIT 25/5s
	cost    *int64         // COST units
	id      *string        // ID name
	within  *time.Duration // WITHIN seconds
}

// parse reads the arguments. The error is a refusal.
func parse(args [][]byte, takes ...string) (*asking, error) {
	for _, arg := range args {
		if !utf8.Valid(arg) {
			return nil, wrong("an argument is not UTF-8")
		}
	}
	a := &asking{name: string(args[0])}
	for args = args[1:]; len(args) > 0; {
		name, n := word(args), 1
		if name == "ENTRY" {
			n = 2
		}
		if !slices.Contains(append([]string{"ENTRY", "LIMIT", "COST"}, takes...), name) {
			return nil, wrong("syntax error: '" + clip(name) + "' is no option here: give ENTRY key value, or LIMIT limit, COST units" +
				strings.Join(append([]string{""}, takes...), ", "))
		}
		if len(args) <= n {
			return nil, wrong(fmt.Sprintf("syntax error: %s needs %d behind it", name, n))
		}
		if name == "ENTRY" {
			a.entries = append(a.entries, config.Entry{Key: string(args[1]), Value: string(args[2])})
		} else if err := a.option(name, string(args[1])); err != nil {
			return nil, err
		}
		args = args[1+n:]
	}
	return a, a.check()
}

// option reads the value of an option.
func (a *asking) option(name, value string) error {
	switch name {
	case "LIMIT":
		l, err := sash.ParseLimit(value)
		if err != nil {
			return wrong(err.Error())
		}
		a.limits = append(a.limits, l)
		return nil
	case "COST":
		cost, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return wrong("value is not an integer or out of range: COST " + clip(value))
		}
		return once(name, &a.cost, cost)
	case "ID":
		return once(name, &a.id, value)
	}
	within, err := time.ParseDuration(value + "s")
	if err != nil || strings.Trim(value, "0123456789.") != "" {
		return wrong("value is not a number of seconds: WITHIN " + clip(value))
	}
	return once(name, &a.within, within)
}

// once sets what may be there once.
func once[T any](name string, into **T, value T) error {
	if *into != nil {
		return wrong("syntax error: " + name + " is there twice")
	}
	*into = &value
	return nil
}

// check returns what is wrong with the arguments together.
func (a *asking) check() error {
	switch {
	case len(a.entries) > 0 && len(a.limits) > 0:
		return wrong("syntax error: ENTRY is for the rules of a domain, and LIMIT for a key without a rule: give one of them")
	case len(a.entries) == 0 && len(a.limits) == 0:
		return wrong("syntax error: give ENTRY key value, for a rule of the domain, or LIMIT limit, such as 25/5s, for a key")
	case a.id != nil && (*a.id == "" || len(*a.id) > decide.MaxIDLength):
		return wrong(fmt.Sprintf("the ID has %d bytes: it must have 1 to %d", len(*a.id), decide.MaxIDLength))
	case len(a.limits) > 0:
		return checkKey(a.name)
	}
	for _, e := range a.entries {
		if strings.TrimSpace(e.Value) == "" {
			return wrong(fmt.Sprintf("the value of %q is empty or blank, and every caller without one would share a limit", wire.Clip(e.Key)))
		}
	}
	subject := wire.Subject{Domain: a.name, Entries: a.entries}
	if err := subject.Check(); err != nil {
		return wrong(err.Error())
	}
	return nil
}

// checkKey returns what is wrong with the key of limits that a command brings along. An empty one is most likely a
// variable that a program did not set.
func checkKey(key string) error {
	switch {
	case strings.TrimSpace(key) == "":
		return wrong("the key is empty or blank, and every caller without one would share a limit")
	case !utf8.ValidString(key):
		return wrong("the key is not UTF-8")
	}
	return nil
}

// request returns what the command asks for.
func (a *asking) request() decide.Request {
	var req decide.Request
	if len(a.limits) > 0 {
		req = decide.Given(a.name, a.limits, a.cost)
	} else {
		req = decide.One(a.name, a.entries, a.cost)
	}
	req.Port = decide.RESP
	if a.id != nil {
		req.ID = *a.id
	}
	if a.within != nil {
		req.Within = *a.within
	}
	return req
}
