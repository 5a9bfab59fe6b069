package replay

import (
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
	"example.com/sash/replay/accesslog"
)

// A Selection is what a request of a log is to a limiter.
type Selection struct {
	// Key is the subject that is charged. An empty key is not limited.
	Key string
	// Cost is the units asked for. Zero is not limited.
	Cost int64
	// Route is what the request is counted under in the list of routes.
	Route string
	// Rule is the index of the rule of a policy that holds for the key. See [Candidate].
	Rule int
	// Class is the number of the first of the Classes that the request is of, counted from 1, or 0.
	Class uint8
}

// Expressions say whom a request is charged to, what it costs, and which requests count. They are in the
// language of github.com/expr-lang/expr over the fields remote_address, user, method, path, query, route,
// host, status, bytes, duration, user_agent and referer, with these functions:
//
//	header("X-Api-Key")             a header, as far as the log has it
//	field("tls.version")            any JSON key or column by its name
//	prefix(remote_address, 24, 64)  the network of an address: bits of IPv4, and of IPv6 (64 when left out)
//	key(user, route)                one key of several parts
type Expressions struct {
	// Key is a text. Empty is remote_address.
	Key string
	// Cost is a whole number of at least 0. Empty is 1.
	Cost string
	// Where is true for the requests that count. Empty is all.
	Where string
	// Routes are patterns in the form of [http.ServeMux], such as "GET /users/{id}". A request's route is
	// the pattern that fits it, or else its path.
	Routes []string
	// Classes are each true for the requests of a class, such as those of a cron job, of which a candidate may let
	// less through than of others: see [Candidate]. At most 255.
	Classes []string
}

// A Selector makes selections of records. It is not safe for concurrent use.
type Selector struct {
	key, cost, where *vm.Program
	classes          []*vm.Program
	machine          vm.VM
	routes           *http.ServeMux
	env              fields
	bind             func(*accesslog.Record) // to the functions
}

// fields are the names that expressions know.
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

// NewSelector compiles expressions. The error says which one is wrong, and where.
func NewSelector(e Expressions) (*Selector, error) {
	s := &Selector{}
	var err error
	if e.Key == "" {
		e.Key = "remote_address"
	}
	var current *accesslog.Record // of the request at hand
	s.env = fields{}
	functions := []expr.Option{
		expr.Env(&s.env),
		expr.Function("header", func(args ...any) (any, error) { return current.Header(args[0].(string)), nil }, new(func(string) string)),
		expr.Function("field", func(args ...any) (any, error) { return current.Field(args[0].(string)), nil }, new(func(string) string)),
		expr.Function("prefix", prefix, new(func(string, int) string), new(func(string, int, int) string)),
		expr.Function("key", key, new(func(string, ...string) string)),
	}
	compile := func(what, text string, kind expr.Option) (*vm.Program, error) {
		if text == "" {
			return nil, nil
		}
		p, err := expr.Compile(text, append(functions, kind)...)
		if err != nil {
			return nil, fmt.Errorf("the expression for the %s: %w", what, err)
		}
		return p, nil
	}
	if s.key, err = compile("key", e.Key, expr.AsKind(reflect.String)); err != nil {
		return nil, err
	}
	if s.cost, err = compile("cost", e.Cost, expr.AsInt64()); err != nil {
		return nil, err
	}
	if s.where, err = compile("requests that count", e.Where, expr.AsBool()); err != nil {
		return nil, err
	}
	if len(e.Classes) > math.MaxUint8 {
		return nil, fmt.Errorf("%d classes of requests: the most is %d", len(e.Classes), math.MaxUint8)
	}
	for _, text := range e.Classes {
		class, err := compile("class", text, expr.AsBool())
		if err != nil {
			return nil, err
		}
		s.classes = append(s.classes, class)
	}
	if len(e.Routes) > 0 {
		if s.routes, err = newRoutes(e.Routes); err != nil {
			return nil, err
		}
	}
	s.bind = func(r *accesslog.Record) { current = r }
	return s, nil
}

// Select makes a selection of a record. It is false for one that does not count. An error is one of an
// expression on this record.
func (s *Selector) Select(r *accesslog.Record) (Selection, bool, error) {
	s.bind(r)
	s.env = fields{
		RemoteAddress: r.RemoteAddress, User: r.User, Method: r.Method, Path: r.Path, Query: r.Query, Host: r.Host,
		Status: r.Status, Bytes: r.Bytes, Duration: r.Duration, UserAgent: r.UserAgent, Referer: r.Referer,
		Route: s.route(r),
	}
	if s.where != nil {
		v, err := s.machine.Run(s.where, &s.env)
		if err != nil {
			return Selection{}, false, err
		}
		if !v.(bool) {
			return Selection{}, false, nil
		}
	}
	sel := Selection{Cost: 1, Route: strings.TrimSpace(r.Method + " " + s.env.Route)}
	if s.routes != nil && strings.Contains(s.env.Route, " ") { // the pattern names the method
		sel.Route = s.env.Route
	}
	for i, class := range s.classes {
		v, err := s.machine.Run(class, &s.env)
		if err != nil {
			return Selection{}, false, err
		}
		if v.(bool) {
			sel.Class = uint8(i + 1)
			break
		}
	}
	v, err := s.machine.Run(s.key, &s.env)
	if err != nil {
		return Selection{}, false, err
	}
	sel.Key = v.(string)
	if s.cost != nil {
		v, err := s.machine.Run(s.cost, &s.env)
		if err != nil {
			return Selection{}, false, err
		}
		if sel.Cost = v.(int64); sel.Cost < 0 || sel.Cost > sash.MaxUnits {
			return Selection{}, false, fmt.Errorf("the cost of this request is %d: a cost is 0 to %d units", sel.Cost, int64(sash.MaxUnits))
		}
	}
	return sel, true, nil
}

func (s *Selector) route(r *accesslog.Record) string {
	if s.routes == nil || r.Method == "" {
		return r.Path
	}
	_, pattern := s.routes.Handler(&http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: r.Path}})
	if pattern == "" {
		return r.Path
	}
	return pattern
}

// newRoutes lets the standard library's router match.
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

// prefix is the network that an address is in. What is no address stays as it is.
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

// key joins parts, none of which may be missing.
func key(args ...any) (any, error) {
	parts := make([]string, len(args))
	for i, a := range args {
		if parts[i] = a.(string); parts[i] == "" {
			return "", nil
		}
	}
	return sash.Key(parts...), nil
}
