// Package extproc implements Envoy's external processing for token budgets. Envoy calls it through two filters. The first
// holds each request until its tokens are reserved. The answer passes the sealed reservation and the RateLimit fields on in
// dynamic metadata. The second forwards what it sees of responses without waiting, and its streams settle the reservations.
package extproc

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

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
	"example.com/sash/service/internal/wire"
)

// questionKey is the initial metadata that says what to count requests by, as in forward-auth: domain=ai&descriptor=header:x-user.
const questionKey = "sash"

// Method is the full name of the protocol's method.
const Method = ext.ExternalProcessor_Process_FullMethodName

var errFilters = errors.New("the filters of Envoy have to be those of examples/tokens/envoy.yaml, so that each body comes whole, with its headers")

// Options for a Service.
type Options struct {
	Shadow bool         // admits, unchanged, requests that the limits refuse or cannot count
	Room   *conns.Room  // bounds the bodies of undecided requests
	Access *access.Gate // says which callers may decide; nil permits all
	Tokens *wire.Tokens // seals reservations, which any instance with the same key settles
	Stats  *stats.Registry
	Log    *slog.Logger
}

// A Service answers streams. An error before the decision ends the stream, and Envoy answers with status_on_error.
type Service struct {
	ext.UnimplementedExternalProcessorServer
	decider *decide.Decider
	opts    Options
	log     throttle.Log
}

// Register adds the protocol to a server.
func Register(server grpc.ServiceRegistrar, decider *decide.Decider, opts Options) {
	ext.RegisterExternalProcessorServer(server, &Service{decider: decider, opts: opts, log: throttle.Log{To: opts.Log}})
}

// A request is one request that a stream decides.
type request struct {
	*Service
	ctx      context.Context
	question *httpapi.Question
	header   http.Header // as a proxy describes it
	path     string
	format   string               // of errors
	fields   http.Header          // of the response, from the decision
	held     []decide.Reservation // tokens
	errors   []any                // whether each is kept after an error
}

// Process implements the protocol. The first message shows which of the two filters opened the stream.
func (s *Service) Process(stream ext.ExternalProcessor_ProcessServer) error {
	first, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case first.GetRequestHeaders() == nil && first.GetObservabilityMode():
		return s.observe(stream, first)
	case first.GetRequestHeaders() != nil && !first.GetObservabilityMode(): // otherwise Envoy would not hold the request
		return s.decide(stream, first)
	}
	return s.wrong(errFilters)
}

// decide answers all messages of a request at once after the decision, because Envoy holds the request until
// then. The stream ends with OK only after these answers: Envoy would otherwise forward the undecided request.
func (s *Service) decide(stream ext.ExternalProcessor_ProcessServer, first *ext.ProcessingRequest) error {
	p := &request{Service: s, ctx: stream.Context()}
	if err := p.begin(); err != nil {
		return err
	}
	p.requestHeaders(first.GetRequestHeaders())
	var body *ext.HttpBody
	if !first.GetRequestHeaders().GetEndOfStream() {
		if c := first.GetProtocolConfig(); c.GetRequestBodyMode() != filterv3.ProcessingMode_STREAMED || !c.GetSendBodyWithoutWaitingForHeaderResponse() {
			return p.wrong(errFilters)
		}
		next, err := stream.Recv()
		if err != nil {
			return err
		}
		switch body = next.GetRequestBody(); {
		case body == nil, !body.GetEndOfStream() && !json.Valid(body.GetBody()):
			return p.wrong(errFilters)
		case !body.GetEndOfStream(): // the JSON is complete, so trailers follow: Envoy would never send the end of the request on
			p.opts.Stats.Invalid()
			p.log.Log(slog.LevelWarn, "a request was refused: it has trailers, or there is no buffer filter before the filter that decides")
			return stream.Send(p.refuse(http.StatusBadRequest, "trailers cannot follow the body here: send the request without them", nil))
		}
	}
	size := int64(len(body.GetBody()))
	if !p.opts.Room.Take(size) {
		return stream.Send(p.refuse(http.StatusServiceUnavailable, "too many large requests are under way: send this one again", nil))
	}
	defer p.opts.Room.Add(size)
	refusal, changed := p.admit(body.GetBody())
	switch {
	case p.ctx.Err() != nil: // the client left during the decision
		for i := range p.held {
			p.settle(p.ctx, &p.held[i], 0)
		}
		return p.ctx.Err()
	case refusal != nil:
		return stream.Send(refusal)
	}
	for _, res := range p.answers(body != nil, changed) {
		if err := stream.Send(res); err != nil {
			return err
		}
	}
	return nil
}

// answers returns the answers to the messages of an admitted request. A nil changed sends the body on unchanged.
func (p *request) answers(body bool, changed []byte) []*ext.ProcessingResponse {
	all := []*ext.ProcessingResponse{{Response: readable, DynamicMetadata: p.metadata()}}
	if body {
		res := &ext.BodyResponse{}
		if changed != nil {
			res.Response = &ext.CommonResponse{BodyMutation: &ext.BodyMutation{Mutation: &ext.BodyMutation_Body{Body: changed}}}
		}
		all = append(all, &ext.ProcessingResponse{Response: &ext.ProcessingResponse_RequestBody{RequestBody: res}})
	}
	return all
}

// readable is the same for all requests. The service cannot read compressed bodies.
var readable = &ext.ProcessingResponse_RequestHeaders{RequestHeaders: &ext.HeadersResponse{Response: &ext.CommonResponse{
	HeaderMutation: set(http.Header{"accept-encoding": {"identity"}}),
}}}

func (p *request) begin() error {
	var err error
	p.question, err = httpapi.ParseQuestion(strings.Join(metadata.ValueFromIncomingContext(p.ctx, questionKey), "&"))
	if err == nil {
		_, err = p.decider.Config().Find(p.question.Domain, nil)
	}
	if err != nil {
		return p.wrong(fmt.Errorf("initial_metadata %q of ext_proc: %w", questionKey, err))
	}
	return p.permit(p.ctx, p.question.Domain)
}

func (s *Service) permit(ctx context.Context, domain string) error {
	if err := s.opts.Access.Check(ctx, domain, access.Decide); err != nil {
		return access.Status(err)
	}
	return nil
}

// wrong counts and logs filters that are misconfigured, and returns the status of the stream.
func (s *Service) wrong(err error) error {
	s.opts.Stats.Invalid()
	s.log.Log(slog.LevelError, "a request was not decided, so that its client gets status_on_error of the filter, or not settled", "error", err)
	return status.Error(codes.InvalidArgument, err.Error())
}

// set returns header fields with one value each. They replace others with the same names.
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

// described maps HTTP/2 pseudo-headers to the fields that forward-auth reads.
var described = map[string]string{":method": "X-Forwarded-Method", ":authority": "X-Forwarded-Host", ":path": "X-Forwarded-Uri"}

func (p *request) requestHeaders(h *ext.HttpHeaders) {
	p.header = make(http.Header, len(h.GetHeaders().GetHeaders()))
	for _, f := range h.GetHeaders().GetHeaders() {
		p.header.Add(f.GetKey(), valueOf(f))
	}
	for pseudo, name := range described { // overwrites what the client sent
		p.header[name] = p.header[pseudo]
	}
	p.path, _, _ = strings.Cut(p.header.Get("X-Forwarded-Uri"), "?")
}

func valueOf(f *corev3.HeaderValue) string { return cmp.Or(string(f.GetRawValue()), f.GetValue()) }

// admit decides a request by its body, which may be empty. It returns the refusal, or the body to send instead; nil keeps the body.
func (p *request) admit(body []byte) (refusal *ext.ProcessingResponse, changed []byte) {
	refusal, changed = p.reserve(body)
	if said := refusal.GetImmediateResponse(); p.opts.Shadow && said != nil && said.GetStatus().GetCode() < http.StatusInternalServerError {
		p.opts.Stats.Service.GlobalShadow.Add(1)
		p.log.Log(slog.LevelWarn, "a request passes that would be refused without SHADOW_MODE", "refusal", string(said.GetBody()))
		refusal, changed, p.fields = nil, nil, nil
	}
	return refusal, changed
}

func (p *request) reserve(body []byte) (refusal *ext.ProcessingResponse, changed []byte) {
	model, stream, unread := read(body)
	p.header.Set("Model", model)
	parts, err := p.question.Parts(p.header)
	if err != nil {
		return p.refuse(http.StatusBadRequest, err.Error(), nil), nil
	}
	counts := func(r *config.Rule) bool { return r != nil && r.Tokens != nil }
	var rules []*config.Rule // by part
	for _, part := range parts {
		found, _ := p.decider.Config().Find(p.question.Domain, part.Entries)
		rules, p.errors = append(rules, found.Rule), append(p.errors, counts(found.Rule) && found.Rule.Tokens.CountErrors)
	}
	if unread != nil { // then its rule is not known either, and may count tokens
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
			if err = plain(p.header); err == nil {
				bound, changed, err = prepare(p.path, body, stream, tokens)
			}
			if err != nil {
				return p.refuse(http.StatusBadRequest, err.Error(), nil), nil
			}
		}
		for i, rule := range rules {
			if counts(rule) {
				parts[i].Cost, parts[i].ByRule = min(bound.Total(), sash.MaxUnits), false
			}
		}
	}
	// The decision continues when Envoy leaves, within the store's budget. Its charge is then known, and can be given back.
	answers, held, err := p.decider.ReserveAll(context.WithoutCancel(p.ctx), decide.Request{Domain: p.question.Domain, Port: decide.GRPC, Parts: parts, Lenient: true})
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

func (p *request) refuse(code int, text string, fields http.Header) *ext.ProcessingResponse {
	mutation := set(fields)
	mutation.SetHeaders = append(mutation.SetHeaders, set(http.Header{"content-type": {"application/json"}}).SetHeaders...)
	return &ext.ProcessingResponse{Response: &ext.ProcessingResponse_ImmediateResponse{ImmediateResponse: &ext.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode(code)}, Headers: mutation, Body: problem(p.format, code, text), Details: "sash",
	}}}
}
