package extproc

import (
	"context"
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

// The namespaces of dynamic metadata. The second filter sends what is in the first with every message, and Envoy adds the fields to responses.
const ownSpace, fieldsSpace = "sash", "sash.fields"

// metadata returns what the response of an admitted request needs.
func (p *request) metadata() *structpb.Struct {
	fields := map[string]any{}
	for name := range p.fields {
		fields[strings.ToLower(name)] = p.fields.Get(name)
	}
	own := map[string]any{}
	if slices.ContainsFunc(p.held, func(r decide.Reservation) bool { return r.Units > 0 }) {
		own["reservation"], own["count_errors"] = p.opts.Tokens.Seal(p.held...), p.errors
	}
	all, _ := structpb.NewStruct(map[string]any{ownSpace: own, fieldsSpace: fields}) // texts and booleans only
	return all
}

// A response is one that a stream settles.
type response struct {
	held     []decide.Reservation
	errors   []*structpb.Value // whether each is kept after an error
	meter    outgoing.Meter
	status   int
	readable bool // it is not compressed
}

// gaveUp are the errors of a proxy that no longer waits: the upstream may still use tokens. Other errors use none.
var gaveUp = []int{http.StatusRequestTimeout, 499, http.StatusGatewayTimeout, 524}

// settle reads a response, to which Envoy expects no answer, and then corrects what its request reserved.
func (s *Service) settle(stream ext.ExternalProcessor_ProcessServer, first *ext.ProcessingRequest) error {
	own := first.GetMetadataContext().GetFilterMetadata()[ownSpace].GetFields()
	token := own["reservation"].GetStringValue()
	if token == "" { // the request was refused, or reserved nothing
		return nil
	}
	ctx := stream.Context()
	held, err := s.opts.Tokens.Open(token)
	if err != nil {
		s.log.Log(slog.LevelWarn, "an estimate stays, because it was not settled", "error", err)
		return nil
	}
	for i := range held {
		if err := s.permit(ctx, held[i].Domain); held[i].Units > 0 && err != nil {
			return err
		}
	}
	r := &response{held: held, errors: own["count_errors"].GetListValue().GetValues(), readable: true}
	for next := first; err == nil && !r.read(next); { // the error is the end of the client, or of the upstream
		next, err = stream.Recv()
	}
	s.correct(ctx, r)
	return nil
}

// read reports whether a message is the last of its response.
func (r *response) read(m *ext.ProcessingRequest) bool {
	for _, f := range m.GetResponseHeaders().GetHeaders().GetHeaders() {
		switch value := valueOf(f); f.GetKey() {
		case ":status":
			r.status, _ = strconv.Atoi(value)
		case "content-encoding":
			r.readable = value == "identity"
		}
	}
	_, _ = r.meter.Write(m.GetResponseBody().GetBody())
	return m.GetResponseHeaders().GetEndOfStream() || m.GetResponseBody().GetEndOfStream() || m.GetResponseTrailers() != nil
}

// correct settles what was reserved when the stream is over. Without final usage the estimate stays.
func (s *Service) correct(ctx context.Context, r *response) {
	u := r.meter.Usage()
	over := int64(0)
	for i := range r.held {
		used := u.Total()
		kept := i < len(r.errors) && r.errors[i].GetBoolValue()
		switch {
		case r.held[i].Units == 0, slices.Contains(gaveUp, r.status):
			continue
		case r.status >= http.StatusBadRequest && !kept:
			used = 0
		case !u.Final || !r.readable:
			continue
		}
		over = max(over, used-r.held[i].Units)
		if err := s.decider.Settle(ctx, &r.held[i], min(used, sash.MaxUnits)); err != nil {
			s.log.Log(slog.LevelWarn, "an estimate stays, because it was not settled", "error", err)
		}
	}
	s.opts.Stats.Overrun.Add(float64(over))
}
