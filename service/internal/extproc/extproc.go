// Package extproc answers Envoy's external processing for token budgets: requests reserve tokens, and responses settle them.
package extproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/outgoing"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/httpapi"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/throttle"
)

// questionKey is the initial metadata with what requests are counted by, as in forward-auth: domain=ai&descriptor=header:x-user.
const questionKey = "sash"

// Method is the method of the protocol.
const Method = ext.ExternalProcessor_Process_FullMethodName

var errNotBuffered = errors.New("ext_proc needs request_body_mode: BUFFERED")

// grace is how long streams go on when the service ends, less than the gRPC server waits for them.
const grace = 5 * time.Second

// Options for a Service.
type Options struct {
	Timeout time.Duration // of one decision; zero is one second
	Shadow  bool          // admits, unchanged, what the limits refuse or cannot count
	Room    *conns.Room   // bounds the bodies that are being decided
	Access  *access.Gate  // says which callers may decide; nil lets all
	Stats   *stats.Registry
	Log     *slog.Logger
}

// A Service answers streams. Before a request is admitted an error ends its stream, and Envoy answers by status_on_error.
type Service struct {
	ext.UnimplementedExternalProcessorServer
	decider *decide.Decider
	opts    Options
	log     throttle.Log
	ended   <-chan struct{}
}

// Register adds the protocol to a server. When ended is closed, admitted streams go on for some seconds, and end with OK.
func Register(server grpc.ServiceRegistrar, decider *decide.Decider, opts Options, ended <-chan struct{}) {
	opts.Timeout = cmp.Or(opts.Timeout, time.Second)
	s := &Service{decider: decider, opts: opts, log: throttle.Log{To: opts.Log}, ended: ended}
	ext.RegisterExternalProcessorServer(server, s)
}

type process struct {
	*Service
	ctx      context.Context
	question *httpapi.Question
	header   http.Header // of the request, as a proxy describes it
	path     string
	format   string // of errors
	buffered bool   // Envoy sends the body as one, without its end if trailers follow
	admitted bool
	fields   http.Header          // of the response, by the decision
	held     []decide.Reservation // tokens
	meter    outgoing.Meter
	status   int  // of the response
	readable bool // it is not compressed
}

// gaveUp are the errors of a proxy that no longer waits: the upstream may still use tokens. Other errors use none.
var gaveUp = []int{http.StatusRequestTimeout, 499, http.StatusGatewayTimeout, 524}

func (p *process) failed() bool { return p.status >= http.StatusBadRequest }

// Process implements the protocol.
func (s *Service) Process(stream ext.ExternalProcessor_ProcessServer) error {
	p := &process{Service: s, header: http.Header{}, readable: true}
	if err := p.begin(stream.Context()); err != nil {
		return err
	}
	defer p.settle()
	requests, left := conns.Receive(p.ctx, stream.Recv)
	ended, late := s.ended, (<-chan time.Time)(nil)
	for {
		select {
		case <-ended:
			ended, late = nil, time.After(grace)
		case <-late:
			return p.over()
		case <-left: //nolint:errcheck // the client has left, or the upstream
			return p.over()
		case req := <-requests:
			res, last, err := p.handle(req)
			if err == nil {
				err = stream.Send(res)
			}
			if err != nil || last {
				return err
			}
		}
	}
}

// over returns OK if the request was admitted: Envoy passes on the rest.
func (p *process) over() error {
	if p.admitted {
		return nil
	}
	return status.Error(codes.Unavailable, "the stream ends before the request is decided")
}

func (p *process) begin(ctx context.Context) error {
	p.ctx = ctx
	var err error
	p.question, err = httpapi.ParseQuestion(strings.Join(metadata.ValueFromIncomingContext(ctx, questionKey), "&"))
	if err == nil {
		_, err = p.decider.Config().Find(p.question.Domain, nil)
	}
	if err != nil {
		return p.wrong(fmt.Errorf("initial_metadata %q of ext_proc: %w", questionKey, err))
	}
	if err = p.opts.Access.Check(p.ctx, p.question.Domain, access.Decide); err != nil {
		err = access.Status(err)
	}
	return err
}

// wrong counts and logs a filter that is configured wrongly, and returns the status of its stream.
func (s *Service) wrong(err error) error {
	s.opts.Stats.Invalid()
	s.log.Log(slog.LevelError, "a request was not decided: its client gets status_on_error of the filter", "error", err)
	return status.Error(codes.InvalidArgument, err.Error())
}

func (p *process) handle(req *ext.ProcessingRequest) (res *ext.ProcessingResponse, last bool, err error) {
	res = &ext.ProcessingResponse{}
	p.buffered = p.buffered || req.GetProtocolConfig().GetRequestBodyMode() == filterv3.ProcessingMode_BUFFERED
	p.responseHeaders(req.GetResponseHeaders())
	response := req.GetResponseHeaders() != nil || req.GetResponseBody() != nil || req.GetResponseTrailers() != nil
	if response && !p.admitted && !p.failed() { // an error may be Envoy's own
		return nil, false, p.wrong(errNotBuffered)
	}
	switch r := req.GetRequest().(type) {
	case *ext.ProcessingRequest_RequestHeaders:
		p.requestHeaders(r.RequestHeaders)
		if r.RequestHeaders.GetEndOfStream() {
			if refusal, _ := p.admit(nil); refusal != nil {
				return refusal, true, nil
			}
		}
		common := &ext.CommonResponse{HeaderMutation: set(http.Header{"accept-encoding": {"identity"}})} // what is compressed cannot be read
		res.Response = &ext.ProcessingResponse_RequestHeaders{RequestHeaders: &ext.HeadersResponse{Response: common}}
	case *ext.ProcessingRequest_RequestBody:
		if p.admitted || !p.buffered && !r.RequestBody.GetEndOfStream() {
			return nil, false, p.wrong(errNotBuffered)
		}
		refusal, body := p.admit(r.RequestBody.GetBody())
		if refusal != nil {
			return refusal, true, nil
		}
		common := &ext.CommonResponse{}
		if body != nil {
			common.HeaderMutation = set(http.Header{"content-length": {strconv.Itoa(len(body))}})
			common.BodyMutation = &ext.BodyMutation{Mutation: &ext.BodyMutation_Body{Body: body}}
		}
		res.Response = &ext.ProcessingResponse_RequestBody{RequestBody: &ext.BodyResponse{Response: common}}
	case *ext.ProcessingRequest_RequestTrailers:
		res.Response = &ext.ProcessingResponse_RequestTrailers{RequestTrailers: &ext.TrailersResponse{}}
	case *ext.ProcessingRequest_ResponseHeaders:
		common := &ext.CommonResponse{HeaderMutation: set(p.fields)}
		res.Response = &ext.ProcessingResponse_ResponseHeaders{ResponseHeaders: &ext.HeadersResponse{Response: common}}
		last = r.ResponseHeaders.GetEndOfStream()
	case *ext.ProcessingRequest_ResponseBody:
		_, _ = p.meter.Write(r.ResponseBody.GetBody())
		res.Response = &ext.ProcessingResponse_ResponseBody{ResponseBody: &ext.BodyResponse{}}
		last = r.ResponseBody.GetEndOfStream()
	case *ext.ProcessingRequest_ResponseTrailers:
		res.Response = &ext.ProcessingResponse_ResponseTrailers{ResponseTrailers: &ext.TrailersResponse{}}
		last = true
	}
	return res, last, nil
}

// set returns fields of one value each, which replace others of their names.
func set(fields http.Header) *ext.HeaderMutation {
	all := &ext.HeaderMutation{}
	for name := range fields {
		all.SetHeaders = append(all.SetHeaders, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(fields[name][0])},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return all
}

// described are the fields in which forward-auth reads what HTTP/2 has in pseudo-headers.
var described = map[string]string{":method": "X-Forwarded-Method", ":authority": "X-Forwarded-Host", ":path": "X-Forwarded-Uri"}

func (p *process) requestHeaders(h *ext.HttpHeaders) {
	pseudo := http.Header{}
	for _, f := range h.GetHeaders().GetHeaders() {
		if name, ok := described[f.GetKey()]; ok {
			pseudo.Set(name, valueOf(f))
		} else {
			p.header.Add(f.GetKey(), valueOf(f))
		}
	}
	for _, name := range described { // whatever the client sent there
		p.header[name] = pseudo[name]
	}
	p.path, _, _ = strings.Cut(pseudo.Get("X-Forwarded-Uri"), "?")
}

func valueOf(f *corev3.HeaderValue) string { return cmp.Or(string(f.GetRawValue()), f.GetValue()) }

func (p *process) responseHeaders(h *ext.HttpHeaders) {
	for _, f := range h.GetHeaders().GetHeaders() {
		switch value := valueOf(f); f.GetKey() {
		case ":status":
			p.status, _ = strconv.Atoi(value)
		case "content-encoding":
			p.readable = value == "identity"
		}
	}
}

// admit decides a request by its body, which may be empty. It returns the refusal, or the body to send instead; nil is the same.
func (p *process) admit(body []byte) (refusal *ext.ProcessingResponse, changed []byte) {
	refusal, changed = p.decide(body)
	if said := refusal.GetImmediateResponse(); p.opts.Shadow && said != nil && said.GetStatus().GetCode() < http.StatusInternalServerError {
		p.opts.Stats.Service.GlobalShadow.Add(1)
		p.log.Log(slog.LevelWarn, "a request passes that would be refused without SHADOW_MODE", "refusal", string(said.GetBody()))
		refusal, changed, p.fields = nil, nil, nil
	}
	p.admitted = refusal == nil
	return refusal, changed
}

func (p *process) decide(body []byte) (refusal *ext.ProcessingResponse, changed []byte) {
	if !p.opts.Room.Take(int64(len(body))) {
		return p.refuse(http.StatusServiceUnavailable, "too many large requests are under way: send this one again", nil), nil
	}
	defer p.opts.Room.Add(int64(len(body)))
	model, streams, unread := read(body)
	p.header.Set("Model", model)
	parts, err := p.question.Parts(p.header)
	if err != nil {
		return p.refuse(http.StatusBadRequest, err.Error(), nil), nil
	}
	var rules []*config.Rule // by part
	for _, part := range parts {
		found, _ := p.decider.Config().Find(p.question.Domain, part.Entries)
		rules = append(rules, found.Rule)
	}
	counts := func(r *config.Rule) bool { return r != nil && r.Tokens != nil }
	if unread != nil { // then its rule is not known either, which may be one of those that count tokens
		all := p.decider.Config().Rules()
		if i := slices.IndexFunc(all, func(r *config.Rule) bool { return counts(r) && r.Domain == p.question.Domain }); i >= 0 {
			p.format = all[i].Tokens.Format
			return p.refuse(http.StatusBadRequest, unread.Error(), nil), nil
		}
	}
	if i := slices.IndexFunc(rules, counts); i >= 0 {
		tokens := rules[i].Tokens
		p.format = tokens.Format
		bound := outgoing.Bound{}
		if len(body) > 0 {
			if bound, changed, err = prepare(p.path, body, streams, tokens); err != nil {
				return p.refuse(http.StatusBadRequest, err.Error(), nil), nil
			}
		}
		for i, rule := range rules {
			if counts(rule) {
				parts[i].Cost, parts[i].ByRule = min(bound.Total(), sash.MaxUnits), false
			}
		}
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.opts.Timeout)
	defer cancel()
	answers, held, err := p.decider.ReserveAll(ctx, decide.Request{Domain: p.question.Domain, Port: decide.GRPC, Parts: parts, Lenient: true})
	if err != nil {
		p.log.Log(slog.LevelError, "no decision", "error", err)
		return p.refuse(http.StatusServiceUnavailable, "the limits cannot be checked now", nil), nil
	}
	p.fields = http.Header{}
	denial := p.question.Disclose(answers, p.fields)
	if denial == nil {
		p.held = held
		return nil, changed
	}
	if p.opts.Shadow {
		p.opts.Stats.Shadowed(answers)
	}
	for i, a := range answers {
		for _, l := range a.Limits {
			if n := parts[i].Cost; counts(rules[i]) && !a.Allowed() && n > l.Limit.Units {
				return p.refuse(http.StatusRequestEntityTooLarge,
					fmt.Sprintf("the request can use %d tokens, and the limit is %d: send a smaller one, or set a smaller maximum output", n, l.Limit.Units), nil), nil
			}
		}
	}
	text := "the limit is reached"
	if seconds := p.fields.Get("Retry-After"); seconds != "" {
		text += ": try again in " + seconds + " seconds"
	}
	return p.refuse(http.StatusTooManyRequests, text, p.fields), nil
}

func (p *process) refuse(code int, text string, fields http.Header) *ext.ProcessingResponse {
	mutation := set(fields)
	mutation.SetHeaders = append(mutation.SetHeaders, set(http.Header{"content-type": {"application/json"}}).SetHeaders...)
	return &ext.ProcessingResponse{Response: &ext.ProcessingResponse_ImmediateResponse{ImmediateResponse: &ext.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(code)}, Headers: mutation, Body: problem(p.format, code, text), Details: "sash",
	}}}
}

// settle corrects what was reserved when the stream is over. Without final usage the estimate stays.
func (p *process) settle() {
	u := p.meter.Usage()
	used := u.Total()
	switch {
	case slices.Contains(gaveUp, p.status):
		return
	case p.failed():
		used = 0
	case !u.Final || !p.readable:
		return
	}
	over := int64(0)
	for i := range p.held {
		if p.held[i].Units == 0 {
			continue
		}
		over = max(over, used-p.held[i].Units)
		if err := p.decider.Settle(p.ctx, &p.held[i], min(used, sash.MaxUnits)); err != nil {
			p.log.Log(slog.LevelWarn, "an estimate stays, because it was not settled", "error", err)
		}
	}
	p.opts.Stats.Overrun.Add(float64(over))
}
