package accesslog

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logfmt/logfmt"
)

// A format is a kind of lines: those of one of its layouts, or, without any, those whose fields have names.
type format struct {
	name    string
	begins  byte // of each line, or 0
	read    func(line []byte) (others, error)
	layouts []*layout
}

// What the combined format has behind the address, up to the last part that no line lacks; and more. The name of a user may
// contain anything but a quotation mark, and is the client's own choice.
const (
	combined     = ` $ident $remote_user [$time_local] "$request" $status`
	combinedMore = ` $body_bytes_sent "$http_referer" "$http_user_agent"`
	haproxy      = `$remote_addr:$remote_port [$start_time] $frontend_name $backend_name/$server $TR/$Tw/$Tc/$Tr/$Ta ` +
		`$status $bytes_read $captured_request_cookie $captured_response_cookie $termination_state $connections $queues`
	envoy = `[$start_time] "$method $path $protocol" $response_code $response_flags `
)

// formats are those that are detected. Of a format with several layouts a line has the first that fits it.
var formats = []format{
	{name: "json", begins: '{', read: readJSON},
	{name: "combined", layouts: []*layout{
		known("combined (Traefik)", `$remote_addr`+strings.Replace(combined, "$time", "$start_time", 1)+combinedMore+` $requests "$router" "$server_url" ${duration}ms`, ""),
		known("combined", `$remote_addr`+combined, combinedMore+` "$xff"`), // $xff in the main format of nginx's packages
		known("combined behind the host (vhost_combined)", `$vhost $remote_addr`+combined, combinedMore+` "$xff"`),
		known("combined behind X-Forwarded-For", `"$http_x_forwarded_for" $remote_addr`+combined, combinedMore),
		known("combined behind X-Forwarded-For", `"$http_x_forwarded_for"`+combined, combinedMore),
		known("combined behind X-Forwarded-For", `$http_x_forwarded_for $remote_addr`+combined, combinedMore),
		known("combined behind X-Forwarded-For", `$http_x_forwarded_for`+combined, combinedMore),
	}},
	// HAProxy's HTTP log (option httplog, and httpslog). It cuts a long request off, with the quotation mark.
	{name: "haproxy", layouts: []*layout{
		known("haproxy", haproxy+` {$captured_headers} "$request`, ""),
		known("haproxy", haproxy+` "$request`, ""),
	}},
	// The defaults of Istio, and of Envoy, which has no address of the peer.
	{name: "envoy", layouts: []*layout{
		known("envoy", envoy+`$response_code_details $connection_termination_details "$upstream_transport_failure_reason" `+
			`$bytes_received $bytes_sent $duration $upstream_service_time "$x_forwarded_for" "$user_agent" "$request_id" "$authority" `+
			`"$upstream_host" $upstream_cluster $upstream_local_address $downstream_local_address $downstream_remote_address `+
			`$requested_server_name $route_name`, ""),
		known("envoy", envoy+`$bytes_received $bytes_sent $duration $upstream_service_time "$x_forwarded_for" "$user_agent" "$request_id" `+
			`"$authority" "$upstream_host"`, ""),
	}},
	{name: "alb", layouts: []*layout{ // AWS application load balancers
		known("alb", `$type $time $elb $client $target $request_processing_time $target_processing_time $response_processing_time `+
			`$elb_status_code $target_status_code $received_bytes $sent_bytes "$request" "$user_agent"`,
			` $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $request_creation_time`),
	}},
	{name: "logfmt", read: readLogfmt},
	{name: "csv"}, // the first line names the columns
}

// known compiles a layout of this package.
func known(name, pattern, more string) *layout {
	l := &layout{name: name, form: pattern}
	l.variables(pattern)
	l.least = len(l.parts)
	l.variables(more)
	if err := l.build(); err != nil {
		panic(fmt.Sprintf("a format of this package: %v", err))
	}
	return l
}

// FormatNames returns the names that [Options.Format] may have.
func FormatNames() (names []string) {
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// Whose JSON it is, by fields that others do not have.
var jsonOf = []struct{ field, name string }{
	{"DownstreamStatus", "Traefik"}, {"request.remote_ip", "Caddy"}, {"response_code", "Envoy"}, {"remote_addr", "nginx"},
}

// describe names the format of a line, for people.
func (f *format) describe(r *Record) string {
	switch from := r.other.(type) {
	case row:
		if from.field("xff") != "" {
			return from.layout.name + " with X-Forwarded-For (nginx's main)"
		} else if from.layout != nil {
			return from.layout.name
		}
	case object:
		for _, by := range jsonOf {
			if f.name == "json" && from.field(by.field) != "" {
				return "json (" + by.name + ")"
			}
		}
	}
	return f.name
}

// A trait is what the value of a variable may be.
type trait struct {
	sample string // what a value looks like, if it may contain the text behind it
	list   bool   // values are separated by ", "
	path   bool   // the value begins with "/", so that nothing needs to be between it and a host
	port   bool   // the value ends with a port, which is no part of it
	is     func(string) bool
}

// anyText is the sample of a value that may contain anything.
const anyText = "a b"

// traits are those of variables of nginx and of this package's own.
var traits = map[string]trait{
	"remote_addr":               {is: isWord},
	"ident":                     {is: func(s string) bool { return isWord(s) && !isAddress(s) }},
	"vhost":                     {is: func(s string) bool { return isWord(s) && s != "-" && !isAddress(s) }, port: true},
	"xff":                       {is: func(s string) bool { return s == "-" || isForwarded(s) }},
	"http_x_forwarded_for":      {list: true},
	"proxy_add_x_forwarded_for": {list: true},
	"http_forwarded":            {list: true},
	"upstream_addr":             {list: true},
	"upstream_status":           {list: true},
	"upstream_response_time":    {list: true},
	"status":                    {is: func(s string) bool { return s != "" }},
	"time_local":                {sample: "02/Jan/2006:15:04:05 -0700"},
	"start_time_local":          {sample: "02/Jan/2006:15:04:05 -0700"},
	"request":                   {sample: "GET / HTTP/1.1"},
	"request_uri":               {path: true},
	"uri":                       {path: true},
	"document_uri":              {path: true},
	"http_user_agent":           {sample: anyText},
}

func isWord(s string) bool { return !strings.ContainsAny(s, ` ,"`) }

// A field is one of a Record: where it is if it is a text, what sets it from the text of a line, which is neither empty nor
// "-" (nil: that is the text), and its names in logs. Of several that a line has, the first counts.
type field struct {
	name  string
	text  func(*Record) *string
	set   func(*Record, string) error
	names []string
}

// The places of some of the fields.
const (
	times     = 0
	addresses = 1
	durations = 10
)

// starts are the names of times that are the start of a request, and ends of those that are its end: those of nginx.
var (
	starts = strings.Fields("StartUTC request_creation_time start_usec start_msec start_time start_time_local start_sec")
	ends   = strings.Fields("usec msec time_iso8601 time_local sec")
)

// units are those of durations in microseconds, by what is behind the number, by the name of the duration, or by that of the
// time and it.
var units = map[string]float64{
	"ns": 1e-3, "us": 1, "µs": 1, "ms": 1e3, "s": 1e6,
	"request_time": 1e6, "request_time_ms": 1e3, "request_time_us": 1, "upstream_response_time": 1e6, "ts duration": 1e6,
	"Ta": 1e3, "start_time duration": 1e3, "start_time_local duration": 1e3, "StartUTC Duration": 1e-3, "target_processing_time": 1e6,
}

// timing says what the time of a record is, by the names that it and the duration have, and computes the start.
func (r *Record) timing(at, took string) {
	r.at, r.took = at, took
	if r.unit == 0 && took != "" {
		r.unit = cmp.Or(units[took], units[at+" "+took])
	}
	length := int64(r.Duration * r.unit)
	switch r.Written = r.Time; {
	case slices.Contains(starts, at):
		if r.Timing, r.Written = Started, r.Time+length; r.unit == 0 {
			r.Written = 0 // unknown
		}
	case r.unit > 0 && r.Time-length >= earliest:
		r.Timing, r.Time = Computed, r.Time-length
	case slices.Contains(ends, at):
		r.Timing = Ended
	}
}

// fields are in the order in which they are filled: a request sets what some behind it set, too.
var fields = []field{
	{"time", nil, (*Record).setTime, strings.Fields(`
		StartUTC request_creation_time start_usec start_msec start_time usec msec time timestamp @timestamp ts time_iso8601
		start_time_local time_local datetime date start_sec sec`)},
	{"remote_address", func(r *Record) *string { return &r.RemoteAddress }, (*Record).setAddress, strings.Fields(`
		remote_address remote_addr request.client_ip request.remote_ip client_ip remote_ip clientip
		downstream_remote_address ClientHost client ip address remote_host peer_addr realip_remote_addr
		proxy_protocol_addr`)},
	{"forwarded_for", func(r *Record) *string { return &r.ForwardedFor }, nil, strings.Fields(`
		x_forwarded_for http_x_forwarded_for proxy_add_x_forwarded_for request.headers.X-Forwarded-For
		request_X-Forwarded-For x-forwarded-for forwarded_for xff fwd http_forwarded http_x_real_ip`)},
	{"user", func(r *Record) *string { return &r.User }, nil, strings.Fields("user remote_user user_id username ClientUsername")},
	{"request", nil, (*Record).setRequest, strings.Fields("request")},
	{"method", func(r *Record) *string { return &r.Method }, (*Record).setMethod, strings.Fields(`
		method request_method request.method request_verb verb RequestMethod`)},
	{"path", func(r *Record) *string { return &r.Path }, (*Record).setTarget, strings.Fields(`
		path request_uri uri document_uri request.uri request_url url RequestPath`)},
	{"query", nil, (*Record).setQuery, strings.Fields("query args query_string")},
	{"status", nil, (*Record).setStatus, strings.Fields("status status_code response_code elb_status_code response DownstreamStatus")},
	{"bytes", nil, (*Record).setBytes, strings.Fields(`
		bytes body_bytes_sent bytes_sent sent_bytes size DownstreamContentSize bytes_read`)},
	{"duration", nil, (*Record).setDuration, strings.Fields(`
		duration request_time_us request_time_ms request_time target_processing_time Duration service
		upstream_response_time Ta`)},
	{"host", func(r *Record) *string { return &r.Host }, nil, strings.Fields(`
		host http_host authority request.host RequestHost vhost server_name`)},
	{"user_agent", func(r *Record) *string { return &r.UserAgent }, nil, strings.Fields(`
		user_agent http_user_agent request.headers.User-Agent request_User-Agent agent`)},
	{"referer", func(r *Record) *string { return &r.Referer }, nil, strings.Fields(`
		referer http_referer request.headers.Referer request_Referer referrer`)},
}

// Fields returns the fields of a Record for which [Options.Fields] can name JSON keys or columns.
func Fields() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

var (
	errNoTime     = errors.New("no time; name its field with time=NAME")
	errNotRequest = errors.New("not a request: it names no client, method, path or status")
)

// A naming has the names of each of the fields in a log.
type naming [][]string

func newNaming(given map[string]string) (naming, error) {
	names := make(naming, len(fields))
	for i, f := range fields {
		names[i] = f.names
	}
	for name, key := range given {
		i := slices.Index(Fields(), name)
		if i < 0 {
			return nil, fmt.Errorf("unknown field %q: use one of %s", name, strings.Join(Fields(), ", "))
		}
		names[i] = []string{key}
	}
	return names, nil
}

// within returns the names that are among some: of a field that has none of those given, the usual ones.
func (n naming) within(some []string) naming {
	all := make(naming, len(n))
	for i := range n {
		for _, names := range [][]string{n[i], fields[i].names} {
			if len(all[i]) == 0 {
				all[i] = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(some, name) })
			}
		}
	}
	return all
}

func (f *field) fill(r *Record, value string) error {
	if f.set != nil {
		return f.set(r, value)
	}
	*f.text(r) = value
	return nil
}

// fill fills a Record from fields that have names. Of those of an object the first that can be read counts: their names are
// nobody's own.
func (n naming) fill(r *Record, from others) error {
	r.other = from
	_, isObject := from.(object)
	var used [durations + 1]string // the names
	for i, names := range n {
		var wrong error
		for _, name := range names {
			if value := from.field(name); value != "" && value != "-" {
				if i <= durations {
					used[i] = name
				}
				if wrong = fields[i].fill(r, value); wrong == nil || !isObject {
					break
				}
			}
		}
		if wrong == nil && i == times && r.Time == 0 {
			wrong = errNoTime
		}
		if wrong != nil {
			return wrong
		}
	}
	r.timing(used[times], used[durations])
	return nil
}

// others are the fields of a line by their names in the log.
type others interface{ field(name string) string }

// A row is a line whose values have their names from elsewhere.
type row struct {
	names, values []string
	layout        *layout // nil of a table
}

// field implements others.
func (r row) field(name string) string {
	if i := slices.Index(r.names, name); i >= 0 && i < len(r.values) {
		return r.values[i]
	}
	return ""
}

var (
	errJSON   = errors.New("not a JSON object")
	errLogfmt = errors.New("not of the form key=value other=value")
)

// An object is one line of JSON, or of key=value pairs.
type object map[string]any

func readJSON(line []byte) (others, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var o object
	if err := decoder.Decode(&o); err != nil || o == nil || decoder.More() {
		return nil, errJSON
	}
	return o, nil
}

func readLogfmt(line []byte) (others, error) {
	if bytes.IndexByte(line, '=') < 0 {
		return nil, errLogfmt
	}
	o := make(object)
	decoder := logfmt.NewDecoder(bytes.NewReader(line))
	for decoder.ScanRecord() {
		for decoder.ScanKeyval() {
			if value := decoder.Value(); len(value) > 0 {
				o[string(decoder.Key())] = string(value)
			}
		}
	}
	if decoder.Err() != nil {
		return nil, errLogfmt
	}
	return o, nil
}

// field implements others. For a list it returns the first element, because Caddy writes headers as lists.
func (o object) field(name string) string {
	v, ok := o[name]
	if !ok {
		in, below, nested := strings.Cut(name, ".")
		if !nested {
			return ""
		}
		inner, _ := o[in].(map[string]any)
		return object(inner).field(below)
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}

// A table is CSV whose first line names the columns. Values must not contain line ends.
type table struct {
	names   naming
	columns []string
}

// errNoRecord is for the line that names the columns: it belongs to the log without being a request.
var errNoRecord = errors.New("no record")

// A headerError is about the line that names the columns, without which no other line can be read.
type headerError struct{ error }

// header reads the line that names the columns.
func (t *table) header(line string) error {
	columns, err := splitCSV(line)
	if err != nil {
		return headerError{fmt.Errorf("the first line does not name the columns: %w", err)}
	}
	for i, name := range columns {
		if columns[i] = strings.TrimSpace(name); slices.Contains(columns[:i], columns[i]) {
			return headerError{fmt.Errorf("the first line names column %q twice", columns[i])}
		}
	}
	if !slices.ContainsFunc(t.names[times], func(name string) bool { return slices.Contains(columns, name) }) {
		return headerError{fmt.Errorf("the first line has no column for the time (one of %s); name it with time=COLUMN",
			strings.Join(t.names[times], ", "))}
	}
	t.columns, t.names = columns, t.names.within(columns)
	return nil
}

// parse implements parser.
func (t *table) parse(line []byte, r *Record) error {
	if t.columns == nil {
		if err := t.header(string(line)); err != nil {
			return err
		}
		return errNoRecord
	}
	values, err := splitCSV(string(line))
	if err != nil {
		return errors.New("invalid quotes")
	}
	if len(values) != len(t.columns) {
		return fmt.Errorf("%d values for %d columns", len(values), len(t.columns))
	}
	return t.names.fill(r, row{names: t.columns, values: values})
}

func splitCSV(line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		return strings.Split(line, ","), nil
	}
	reader := csv.NewReader(strings.NewReader(line))
	reader.FieldsPerRecord = -1
	return reader.Read()
}
