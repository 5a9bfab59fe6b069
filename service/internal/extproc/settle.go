package extproc

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash"
	"example.com/sash/outgoing"
	"example.com/sash/service/internal/decide"
)

// The namespaces of dynamic metadata. The second filter sends the first namespace with every message. Envoy adds the fields to responses.
const ownSpace, fieldsSpace = "sash", "sash.fields"

// metadata returns what the response of an admitted request needs.
func (p *request) metadata() *structpb.Struct {
	own, fields := map[string]*structpb.Value{}, make(map[string]*structpb.Value, len(p.fields))
	for name, values := range p.fields {
		fields[strings.ToLower(name)] = structpb.NewStringValue(values[0])
	}
	if slices.ContainsFunc(p.held, func(r decide.Reservation) bool { return r.Units > 0 }) {
		own["reservation"] = structpb.NewStringValue(p.opts.Tokens.Seal(p.held...))
	}
	if slices.Contains(p.errors, any(true)) {
		kept, _ := structpb.NewList(p.errors) // booleans only
		own["count_errors"] = structpb.NewListValue(kept)
	}
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		ownSpace: structpb.NewStructValue(&structpb.Struct{Fields: own}), fieldsSpace: structpb.NewStructValue(&structpb.Struct{Fields: fields}),
	}}
}

// A response is what a stream has seen of one response.
type response struct {
	meter    outgoing.Meter
	status   int
	upstream bool // the upstream sent it, not Envoy, which also answers requests that were not admitted
	readable bool // it is not compressed
}

// gaveUp are the errors of a proxy that stopped waiting: the upstream may still use tokens. After other errors it uses none.
var gaveUp = []int{http.StatusRequestTimeout, 499, http.StatusGatewayTimeout, 524}

var errMetadata = errors.New("the response of an admitted request came without the metadata sash: the first filter of ext_proc has to have " +
	"receiving_namespaces, and the second one forwarding_namespaces, as in examples/tokens/envoy.yaml")

// observe reads a response, whose messages Envoy does not wait to have answered, and then settles the reservation of
// its request. It defers work until the end of the response, because the client waits for its beginning.
func (s *Service) observe(stream ext.ExternalProcessor_ProcessServer, first *ext.ProcessingRequest) error {
	own, decided := first.GetMetadataContext().GetFilterMetadata()[ownSpace]
	token := own.GetFields()["reservation"].GetStringValue()
	details := first.GetAttributes()["envoy.filters.http.ext_proc"].GetFields()["response.code_details"]
	r := &response{readable: true, upstream: details.GetStringValue() == "via_upstream"}
	last, err := r.read(first), error(nil)
	switch {
	case !decided && r.upstream:
		s.unsettled(errMetadata)
		return nil
	case token == "": // the request was refused, or reserved nothing
		return nil
	}
	for !last && err == nil { // the error is the end of the client, or of the upstream
		if first, err = stream.Recv(); err == nil {
			last = r.read(first)
		}
	}
	held, err := s.opts.Tokens.Open(token)
	if err != nil {
		s.unsettled(err)
		return nil
	}
	return s.correct(stream.Context(), r, held, own.GetFields()["count_errors"].GetListValue().GetValues())
}

// read reports whether a message is the last of its response.
func (r *response) read(m *ext.ProcessingRequest) bool {
	for _, f := range m.GetResponseHeaders().GetHeaders().GetHeaders() {
		switch value := valueOf(f); f.GetKey() {
		case ":status":
			r.status, _ = strconv.Atoi(value)
		case "content-encoding":
			r.readable = value == "identity"
		case "x-envoy-upstream-service-time":
			r.upstream = true
		}
	}
	_, _ = r.meter.Write(m.GetResponseBody().GetBody())
	return m.GetResponseHeaders().GetEndOfStream() || m.GetResponseBody().GetEndOfStream() || m.GetResponseTrailers() != nil
}

// correct settles the reservation at the end of the stream. Without final usage the estimate stays. An error gives back the parts not kept.
func (s *Service) correct(ctx context.Context, r *response, held []decide.Reservation, errors []*structpb.Value) error {
	u := r.meter.Usage()
	over := int64(0)
	for i := range held {
		used := u.Total()
		kept := i < len(errors) && errors[i].GetBoolValue()
		switch {
		case held[i].Units == 0, slices.Contains(gaveUp, r.status):
			continue
		case r.status >= http.StatusBadRequest && !kept:
			used = 0
		case !u.Final || !r.readable:
			continue
		}
		if err := s.permit(ctx, held[i].Domain); err != nil {
			s.unsettled(err)
			return err
		}
		over = max(over, used-held[i].Units)
		s.settle(ctx, &held[i], min(used, sash.MaxUnits))
	}
	s.opts.Stats.Overrun.Add(float64(over))
	return nil
}

func (s *Service) settle(ctx context.Context, r *decide.Reservation, used int64) {
	if err := s.decider.Settle(ctx, r, used); err != nil {
		s.unsettled(err)
	}
}

func (s *Service) unsettled(err error) {
	s.opts.Stats.Unsettled.Inc()
	s.log.Log(slog.LevelWarn, "an estimate stays, because it was not settled", "error", err)
}
