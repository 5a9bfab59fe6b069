package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/sash"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// asks reads the arguments of a command that asks for units: what it names first, and options in any order, each a word
// with its values. A command has ENTRY, and then it names a domain, or LIMIT, and then it names a key. The error is a
// refusal, or says that the caller lacks the right, or that to bring limits along.
func (c *conn) asks(args [][]byte, need access.Right, takes ...string) (req decide.Request, err error) {
	for _, arg := range args {
		if !utf8.Valid(arg) {
			return req, wrong("an argument is not UTF-8")
		}
	}
	takes = append([]string{"ENTRY", "LIMIT", "COST"}, takes...)
	name, given := string(args[0]), make(map[string]string)
	var entries []config.Entry
	var limits []sash.Limit
	for args = args[1:]; len(args) > 0; {
		option, n := word(args), 1
		if option == "ENTRY" {
			n = 2
		}
		_, again := given[option]
		switch {
		case !slices.Contains(takes, option):
			return req, wrong("syntax error: '" + clip(option) + "' is no option here: give ENTRY key value, or LIMIT limit, COST units" +
				strings.Join(append([]string{""}, takes[3:]...), ", "))
		case len(args) <= n:
			return req, wrong(fmt.Sprintf("syntax error: %s needs %d behind it", option, n))
		case again:
			return req, wrong("syntax error: " + option + " is there twice")
		case option == "ENTRY":
			entries = append(entries, config.Entry{Key: string(args[1]), Value: string(args[2])})
		case option == "LIMIT":
			limit, err := sash.ParseLimit(string(args[1]))
			if err != nil {
				return req, wrong(err.Error())
			}
			limits, need = append(limits, limit), need|access.Bring(&limit)
		default:
			given[option] = string(args[1])
		}
		args = args[1+n:]
	}
	if err = checkSubject(name, entries, limits); err != nil {
		return req, err
	}
	var cost *int64
	if text, ok := given["COST"]; ok {
		units, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return req, wrong("value is not an integer or out of range: COST " + clip(text))
		}
		cost = &units
	}
	if req = decide.One(name, entries, cost); len(limits) > 0 {
		req = decide.Given(name, limits, cost)
	}
	req.Port = decide.RESP
	id, named := given["ID"]
	if req.ID = id; named && (id == "" || len(id) > decide.MaxIDLength) {
		return req, wrong(fmt.Sprintf("the ID has %d bytes: it must have 1 to %d", len(id), decide.MaxIDLength))
	}
	if text, ok := given["WITHIN"]; ok {
		if req.Within, err = time.ParseDuration(text + "s"); err != nil || strings.Trim(text, "0123456789.") != "" {
			return req, wrong("value is not a number of seconds: WITHIN " + clip(text))
		}
		if most := c.handler.opts.MaxWait; req.Within > most {
			return req, wrong(fmt.Sprintf("WITHIN %v: it can be up to %v seconds here (sash serve --max-wait)", req.Within.Seconds(), most.Seconds()))
		}
	}
	caller, err := c.permit(req.Domain, need)
	if err == nil {
		req.Book = caller.May(req.Domain, access.Book)
	}
	return req, err
}

// checkSubject returns what is wrong with what a command names.
func checkSubject(name string, entries []config.Entry, limits []sash.Limit) error {
	switch {
	case len(entries) > 0 && len(limits) > 0:
		return wrong("syntax error: ENTRY is for the rules of a domain, and LIMIT for a key without a rule: give one of them")
	case len(entries) == 0 && len(limits) == 0:
		return wrong("syntax error: give ENTRY key value, for a rule of the domain, or LIMIT limit, such as 25/5s, for a key")
	case len(limits) > 0:
		return checkKey(name)
	}
	for _, e := range entries {
		if strings.TrimSpace(e.Value) == "" {
			return wrong(fmt.Sprintf("the value of %q is empty or blank, and every caller without one would share a limit", wire.Clip(e.Key)))
		}
	}
	if err := (&wire.Subject{Domain: name, Entries: entries}).Check(); err != nil {
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
