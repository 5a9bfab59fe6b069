package rls

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"unicode/utf8"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// ServeHTTP answers a RateLimitRequest in JSON, by whatever method, as Envoy's service does: 200 when it is allowed and
// 429 when it is not, both with the RateLimitResponse in JSON. 400 is a wrong request, 401 and 403 a caller without the right, 413 a
// large one, 503 a store that does not answer, 504 one that did not in time, and 500 a fault; their bodies are text. With a
// Counting every error is 400 and Bad Request, as there, and the log has what is wrong.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wrong := func(code int, text string) {
		s.opts.Stats.Invalid()
		s.log.Log(slog.LevelWarn, "a wrong request to /json was not decided", "error", text)
		s.fail(w, code, text)
	}
	from := &weighed{Reader: http.MaxBytesReader(w, r.Body, maxMessage), under: &s.large}
	defer func() { s.large.give(from.taken) }()
	body, err := io.ReadAll(from)
	var req pb.RateLimitRequest
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		wrong(http.StatusRequestEntityTooLarge, "the body is too large")
		return
	case errors.Is(err, errManyBytes):
		wrong(http.StatusServiceUnavailable, err.Error())
		return
	case err != nil:
		err = errors.New("the body did not arrive")
	case !utf8.Valid(body):
		err = errors.New("bad JSON: the body is not UTF-8")
	default:
		if err = protojson.Unmarshal(body, &req); err != nil {
			err = fmt.Errorf("bad JSON: %w", err)
		}
	}
	if err != nil {
		wrong(http.StatusBadRequest, err.Error())
		return
	}
	res, err := s.ShouldRateLimit(r.Context(), &req)
	if err != nil {
		s.fail(w, httpStatus(status.Code(err)), status.Convert(err).Message())
		return
	}
	out, err := protojson.Marshal(res)
	if err != nil { // every response here can be marshalled
		http.Error(w, "the answer could not be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if res.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(out) // a client that is gone is no concern of ours
}

// fail answers a request that was not decided. The reason is logged already.
func (s *Service) fail(w http.ResponseWriter, code int, text string) {
	if s.opts.Counting != nil {
		code, text = http.StatusBadRequest, http.StatusText(http.StatusBadRequest)
	}
	http.Error(w, text, code)
}

func httpStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unavailable, codes.Canceled, codes.ResourceExhausted:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
