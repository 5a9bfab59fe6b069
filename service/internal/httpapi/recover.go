package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"example.com/sash/service/internal/wire"
)

// Recover answers 500 where a handler panics, logs it and calls count. net/http by itself would close the connection
// without a word, and nothing would be counted.
func Recover(next http.Handler, log *slog.Logger, count func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			fault := recover()
			if fault == nil {
				return
			}
			if fault == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
				panic(fault)
			}
			count()
			log.Error("a request was not answered because of a fault", "path", wire.Clip(r.URL.Path), "fault", fmt.Sprint(fault), "stack", string(debug.Stack()))
			w.Header().Del("Retry-After")
			wire.Fail(w, http.StatusInternalServerError, "the request met a fault of the service: whether it was charged is not known")
		}()
		next.ServeHTTP(w, r)
	})
}
