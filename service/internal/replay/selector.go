package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"

	"example.com/sash"
	"example.com/sash/service/internal/replay/accesslog"
)

// A Selection is a logged request as a limiter sees it.
type Selection struct {
	// Key is the subject that is charged. A request with an empty key is not limited.
	Key string
	// Cost is the units requested. A request of no cost is not limited.
	Cost int64
	// Route is the name of the request in the list of routes.
	Route string
	// Rule is the index of the rule that applies to the key. See [Candidate].
	Rule int
}

// Expressions select the subject that a request is charged to, its cost, and the requests that count. They are in the
// language of github.com/expr-lang/expr over the fields remote_address, user, method, path, query, route, host, status,
// bytes, duration, user_agent and referer, with these functions:
//
//	header("X-Api-Key")             a header, if the log has it
//	field("tls.version")            any JSON key or column by name
//	prefix(remote_address, 24, 64)  the network of an address: bits of IPv4, and of IPv6 (64 by default)
//	key(user, route)                one key from several parts
type Expressions struct {
	// Key returns a string. Empty means remote_address.
	Key string
	// Cost returns a number of at least 0. A fraction is rounded up, so that no part of a unit is free. Empty means 1.
	Cost string
	// Where returns true for the requests that count. Empty means all.
	Where string
	// Routes are patterns in the form of [http.ServeMux], such as "GET /users/{id}". A request's route is the pattern
	// that matches it, or else its path.
	Routes []string
}

// A Selector turns records into selections. It is not safe for concurrent use.
type Selector struct {
	key, cost, where *program
	machine          vm.VM
	missing          missing
	routes           *http.ServeMux
	env              fields
	bind             func(*accesslog.Record) // binds the functions to a record
}

// fields are the names that expressions can use.
type fields struct {
	RemoteAddress string  `expr:"remote_address"`
	User          string  `expr:"user"`
	Method        string  `expr:"method"`
	Path          string  `expr:"path"`
	Query         string  `expr:"query"`
	Route         string  `expr:"route"`
	Host          string  `expr:"host"`
	Status        int64   `expr:"status"`
	Bytes         int64   `expr:"bytes"`
	Duration      float64 `expr:"duration"`
	UserAgent     string  `expr:"user_agent"`
	Referer       string  `expr:"referer"`
}

// NewSelector compiles expressions. The error names the invalid one, and the position.
func NewSelector(e Expressions) (*Selector, error) {
	s := &Selector{}
	var err error
	e.Key = cmp.Or(e.Key, "remote_address")
	var current *accesslog.Record // the current request
	s.env = fields{}
	functions := []expr.Option{
		expr.Env(&s.env),
		expr.Function("header", func(args ...any) (any, error) {
			return s.missing.check("header", args[0].(string), current.Header(args[0].(string))), nil
		}, new(func(string) string)),
		expr.Function("field", func(args ...any) (any, error) {
			return s.missing.check("field", args[0].(string), current.Field(args[0].(string))), nil
		}, new(func(string) string)),
		expr.Function("prefix", prefix, new(func(string, int) string), new(func(string, int, int) string)),
		expr.Function("key", key, new(func(string, ...string) string)),
	}
	compile := func(what, text string, kind expr.Option) (*program, error) {
		if text == "" {
			return nil, nil
		}
		p, err := expr.Compile(text, append(functions, kind)...)
		if err != nil {
			return nil, fmt.Errorf("expression for the %s: %w", what, err)
		}
		return &program{p, fieldsOf(text)}, nil
	}
	if s.key, err = compile("key", e.Key, expr.AsKind(reflect.String)); err != nil {
		return nil, err
	}
	if s.cost, err = compile("cost", e.Cost, expr.AsFloat64()); err != nil {
		return nil, err
	}
	if s.where, err = compile("requests that count", e.Where, expr.AsBool()); err != nil {
		return nil, err
	}
	if len(e.Routes) > 0 {
		if s.routes, err = newRoutes(e.Routes); err != nil {
			return nil, err
		}
	}
	s.bind = func(r *accesslog.Record) { current = r }
	return s, nil
}

// Select returns the selection of a record. It reports false for a record that does not count. An error is an
// expression's error on this record.
func (s *Selector) Select(r *accesslog.Record) (Selection, bool, error) {
	s.bind(r)
	s.env = fields{
		RemoteAddress: r.RemoteAddress, User: r.User, Method: r.Method, Path: r.Path, Query: r.Query, Host: r.Host,
		Status: r.Status, Bytes: r.Bytes, Duration: r.Duration, UserAgent: r.UserAgent, Referer: r.Referer,
		Route: s.route(r),
	}
	s.missing.next()
	sel, counts, err := s.selection(r)
	if err != nil && len(s.missing.now) > 0 { // the expression fails on what is not there
		return Selection{}, true, nil
	}
	return sel, counts, err
}

func (s *Selector) selection(r *accesslog.Record) (Selection, bool, error) {
	if s.where != nil {
		v, err := s.run(s.where, r)
		if err != nil {
			return Selection{}, false, err
		}
		if !v.(bool) {
			return Selection{}, false, nil
		}
	}
	sel := Selection{Cost: 1, Route: strings.TrimSpace(r.Method + " " + s.env.Route)}
	if s.routes != nil && strings.Contains(s.env.Route, " ") { // the pattern includes the method
		sel.Route = s.env.Route
	}
	v, err := s.run(s.key, r)
	if err != nil {
		return Selection{}, false, err
	}
	sel.Key = v.(string)
	if s.cost != nil {
		v, err := s.run(s.cost, r)
		if err != nil {
			return Selection{}, false, err
		}
		if sel.Cost, err = wholeUnits(v.(float64)); err != nil {
			return Selection{}, false, err
		}
	}
	return sel, true, nil
}

func (s *Selector) run(p *program, r *accesslog.Record) (any, error) {
	for _, name := range p.fields {
		if !r.Has(name) {
			s.missing.add(name)
		}
	}
	return s.machine.Run(p.code, &s.env)
}

// wholeUnits rounds a cost up. It forgives the error of floating point in what is meant to be whole, such as 3 * 0.1 * 10.
func wholeUnits(cost float64) (int64, error) {
	whole := math.Round(cost)
	if math.Abs(cost-whole) > 1e-9*math.Max(1, cost) || whole == 0 && cost > 0 {
		whole = math.Ceil(cost)
	}
	if !(whole >= 0 && whole <= sash.MaxUnits && cost >= 0) {
		return 0, fmt.Errorf("the cost of this request is %v: it must be 0 to %d units", cost, int64(sash.MaxUnits))
	}
	return int64(whole), nil
}

func (s *Selector) route(r *accesslog.Record) string {
	if s.routes == nil || r.Method == "" {
		return r.Path
	}
	_, pattern := s.routes.Handler(&http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: r.Path}})
	return cmp.Or(pattern, r.Path)
}

// newRoutes returns a matcher that uses the standard library's router.
func newRoutes(patterns []string) (mux *http.ServeMux, err error) {
	mux = http.NewServeMux()
	for _, p := range patterns {
		func() {
			defer func() {
				if why := recover(); why != nil {
					err = errors.Join(err, fmt.Errorf("route %q: %v", p, why))
				}
			}()
			mux.Handle(p, http.NotFoundHandler())
		}()
	}
	return mux, err
}

// prefix returns the network of an address. It returns anything else unchanged.
func prefix(args ...any) (any, error) {
	text, v4, v6 := args[0].(string), args[1].(int), 64
	if len(args) > 2 {
		v6 = args[2].(int)
	}
	address, _ := netip.ParseAddr(text)
	if !address.IsValid() {
		return text, nil
	}
	address = address.Unmap()
	bits := v6
	if address.Is4() {
		bits = v4
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return nil, fmt.Errorf("prefix: %d bits of %s: IPv4 has 0 to 32, IPv6 0 to 128", bits, address)
	}
	return network.String(), nil
}

// key joins parts. It returns "" if one is empty.
func key(args ...any) (any, error) {
	parts := make([]string, len(args))
	for i, a := range args {
		if parts[i] = a.(string); parts[i] == "" {
			return "", nil
		}
	}
	return sash.Key(parts...), nil
}
