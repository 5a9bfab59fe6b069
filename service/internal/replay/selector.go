package replay

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"example.com/sash"
	"example.com/sash/middleware"
	"example.com/sash/service/internal/replay/accesslog"
)

// A Selection is a logged request as a limiter sees it.
type Selection struct {
	// Key is the subject that is charged. A request with an empty key is not limited.
	Key string
	// Cost is the units requested. A request with a cost of zero is not limited.
	Cost int64
	// Route is the name of the request in the list of routes.
	Route string
	// Status and Agent are the request's status and user agent, if the log has them.
	Status int64
	Agent  string
	// Seconds reports that the log has times in whole seconds, even if the computed start is more precise.
	Seconds bool
	// Rule is the index of the rule that applies to the key. See [Candidate].
	Rule int
}

// Expressions select the subject that a request is charged to, its cost, and the requests that count. They are
// written in the language of github.com/expr-lang/expr. The variables are client, which is remote_address as
// [middleware.Client] groups it, route, and the fields of [accesslog.Fields]. The functions are:
//
//	header("X-Api-Key")             a header, if the log has it
//	field("tls.version")            any JSON key or column by name
//	prefix(remote_address, 24, 64)  the network of an address: bits of IPv4, and of IPv6 (64 by default)
//	key(user, route)                one key from several parts
type Expressions struct {
	// Key returns a string. Empty means client.
	Key string
	// Cost returns a number of at least 0. A fraction is rounded up, so that every started unit is charged. Empty means 1.
	Cost string
	// Where returns true for the requests that count. Empty means all requests.
	Where string
	// Routes are patterns of [http.ServeMux], such as "GET /users/{id}". A request's route is the matching pattern, or its path.
	Routes []string
}

// A Selector turns records into selections. It is not safe for concurrent use.
type Selector struct {
	key, cost, where *program // nil for the default
	machine          vm.VM
	routes           *http.ServeMux
	env              fields
	record           *accesslog.Record // the current one

	records int64
	missing []Missing
	lacks   bool // an expression read a field that the current record lacks
}

type fields struct {
	accesslog.Record
	Route  string `expr:"route"`
	Client string `expr:"client"`
}

// NewSelector compiles expressions. The error names the invalid expression and the position in it.
func NewSelector(e Expressions) (*Selector, error) {
	s := &Selector{}
	function := func(name string, of func(string) string) expr.Option {
		return expr.Function(name, func(args ...any) (any, error) {
			value := of(args[0].(string))
			if value == "" {
				s.miss(fmt.Sprintf("%s(%q)", name, args[0]))
			}
			return value, nil
		}, new(func(string) string))
	}
	functions := []expr.Option{
		expr.Env(&s.env),
		function("header", func(name string) string { return s.record.Header(name) }),
		function("field", func(name string) string { return s.record.Field(name) }),
		expr.Function("prefix", prefix, new(func(string, int) string), new(func(string, int, int) string)),
		expr.Function("key", key, new(func(string, ...string) string)),
	}
	compile := func(what, text string, kind expr.Option) (*program, error) {
		if text == "" {
			return nil, nil
		}
		p := &program{}
		code, err := expr.Compile(text, append(functions, kind, expr.Patch(p))...)
		if err != nil {
			return nil, fmt.Errorf("expression for the %s: %w", what, err)
		}
		p.code = code
		return p, nil
	}
	var err, wrong error
	if e.Key != defaultKey {
		s.key, err = compile("key", e.Key, expr.AsKind(reflect.String))
	}
	s.cost, wrong = compile("cost", e.Cost, expr.AsFloat64())
	err = cmp.Or(err, wrong)
	s.where, wrong = compile("requests that count", e.Where, expr.AsBool())
	err = cmp.Or(err, wrong)
	if len(e.Routes) > 0 && err == nil {
		s.routes, err = newRoutes(e.Routes)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A program is a compiled expression with the record fields that it reads.
type program struct {
	code   *vm.Program
	fields []string
}

func (p *program) Visit(node *ast.Node) {
	name, ok := (*node).(*ast.IdentifierNode)
	if !ok {
		return
	}
	field := name.Value
	if field == defaultKey {
		field = "remote_address"
	}
	if slices.Contains(accesslog.Fields(), field) && !slices.Contains(p.fields, field) {
		p.fields = append(p.fields, field)
	}
}

// A Missing is a field that an expression reads and that some records of the log lack.
type Missing struct {
	// Field is the field as written in the expression, such as user or header("X-Api-Key").
	Field string
	// Records is how many records lack the field, and Of is how many records were selected.
	Records, Of int64

	last int64 // the last record that lacks the field
}

// String returns a sentence without a full stop: "7 of 10 lines have no user".
func (m Missing) String() string {
	return fmt.Sprintf("%d of %d lines have no %s", m.Records, m.Of, m.Field)
}

// miss counts a field as missing, once per record. It counts only the first fifty names, since expressions can compute names.
func (s *Selector) miss(field string) {
	s.lacks = true
	i := slices.IndexFunc(s.missing, func(m Missing) bool { return m.Field == field })
	if i < 0 && len(s.missing) < 50 {
		i = len(s.missing)
		s.missing = append(s.missing, Missing{Field: field})
	}
	if i >= 0 && s.missing[i].last != s.records {
		s.missing[i].last = s.records
		s.missing[i].Records++
	}
}

// Missing returns the fields that expressions read and that some of the selected records lack, in the order of
// discovery. If an expression fails because a field is missing, the request has no key.
func (s *Selector) Missing() []Missing {
	all := slices.Clone(s.missing)
	for i := range all {
		all[i].Of = s.records
	}
	return all
}

// ByAddress reports whether the key is computed from the client's address.
func (s *Selector) ByAddress() bool {
	return s.key == nil || slices.Contains(s.key.fields, "remote_address")
}

const defaultKey = "client"

// clientOf returns the client of an address as the production limiters group it. It returns other text unchanged.
func clientOf(text string) string {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return text
	}
	return middleware.Client(address, middleware.DefaultIPv6Bits)
}

// Describe returns a key expression in words, such as "the address", or the expression itself in quotes.
func Describe(key string) string {
	key = cmp.Or(key, defaultKey)
	switch {
	case key == defaultKey:
		return "the address, IPv6 by its /64"
	case key == "remote_address":
		return "the address"
	case strings.HasPrefix(key, "prefix(remote_address,"):
		return "the network of the address"
	case slices.Contains(accesslog.Fields(), key):
		return "the " + strings.ReplaceAll(key, "_", " ")
	case constant.MatchString(key):
		return key + " for every request"
	}
	return fmt.Sprintf("the value of %q", key)
}

// constant matches a key expression that is a string literal, the same for every request.
var constant = regexp.MustCompile(`^\s*("[^"]*"|'[^']*')\s*$`)

// Select returns the selection of a record, and whether the record counts. The error is that of an expression.
func (s *Selector) Select(r *accesslog.Record) (Selection, bool, error) {
	s.record, s.lacks = r, false
	s.records++
	s.env = fields{*r, s.route(r), clientOf(r.RemoteAddress)}
	selection, counts, err := s.selection(r)
	if err != nil && s.lacks { // the expression fails because a field is missing
		return Selection{}, true, nil
	}
	return selection, counts, err
}

func (s *Selector) selection(r *accesslog.Record) (sel Selection, counts bool, err error) {
	if s.where != nil {
		if v, err := s.run(s.where, r); err != nil || !v.(bool) {
			return sel, false, err
		}
	}
	sel = Selection{Cost: 1, Status: r.Status, Agent: r.UserAgent, Route: strings.TrimSpace(r.Method + " " + s.env.Route),
		Seconds: r.Written > r.Time && r.Written%1_000_000 == 0}
	if s.routes != nil && strings.Contains(s.env.Route, " ") { // the pattern includes the method
		sel.Route = s.env.Route
	}
	if sel.Key = s.env.Client; s.key != nil {
		key, err := s.run(s.key, r)
		if err != nil {
			return sel, false, err
		}
		sel.Key = key.(string)
	} else if sel.Key == "" {
		s.miss("remote_address")
	}
	if s.cost != nil {
		cost, err := s.run(s.cost, r)
		if err != nil {
			return sel, false, err
		}
		sel.Cost, err = wholeUnits(cost.(float64))
		return sel, err == nil, err
	}
	return sel, true, nil
}

func (s *Selector) run(p *program, r *accesslog.Record) (any, error) {
	for _, name := range p.fields {
		if !r.Has(name) {
			s.miss(name)
		}
	}
	return s.machine.Run(p.code, &s.env)
}

// wholeUnits rounds a cost up. It tolerates floating-point error in whole numbers, such as 3 * 0.1 * 10.
func wholeUnits(cost float64) (int64, error) {
	whole := math.Ceil(cost - 1e-9*math.Max(1, cost))
	if cost > 0 {
		whole = max(1, whole)
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

func newRoutes(patterns []string) (mux *http.ServeMux, err error) {
	mux, pattern := http.NewServeMux(), ""
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("route %q: %v", pattern, why)
		}
	}()
	for _, pattern = range patterns {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return mux, nil
}

// prefix returns the network of an address. It returns other text unchanged.
func prefix(args ...any) (any, error) {
	text, bits, v6 := args[0].(string), args[1].(int), 64
	if len(args) > 2 {
		v6 = args[2].(int)
	}
	address, _ := netip.ParseAddr(text)
	if !address.IsValid() {
		return text, nil
	}
	if address = address.Unmap(); address.Is6() {
		bits = v6
	}
	network, err := address.Prefix(bits)
	if err != nil {
		return nil, fmt.Errorf("prefix: %d bits of %s: IPv4 has 0 to 32, IPv6 0 to 128", bits, address)
	}
	return network.String(), nil
}

func key(args ...any) (any, error) {
	parts := make([]string, len(args))
	for i, a := range args {
		if parts[i] = a.(string); parts[i] == "" {
			return "", nil
		}
	}
	return sash.Key(parts...), nil
}
