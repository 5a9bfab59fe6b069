// Package httplimit puts a [sash.Limiter] in front of an HTTP handler.
//
//	limiter, err := sash.New(store, &sash.Options{Prefix: "api"}, sash.PerMinute(60))
//	...
//	limit, err := httplimit.New(limiter, httplimit.PeerAddress, &httplimit.Options{
//		OnError: func(r *http.Request, err error) { slog.ErrorContext(r.Context(), "limit", "error", err) },
//	})
//	...
//	server := http.Server{Handler: limit(mux)}
//
// The Prefix keeps what this limiter counts apart from other limiters on the store. OnError hears of a store
// that fails and of key functions that are wrong; without it nobody does.
//
// New and [NewLayers] return a func(http.Handler) http.Handler, which is what chi and every other router
// of net/http takes as a middleware. A [KeyFunc] says whose request it is; a [Layer] adds limits on
// something else, and all layers are decided in one step, all or nothing.
//
// # Answers
//
// An admitted request goes on to the handler, with fields that tell what is left (see [Dialect]). The
// others are answered with application/problem+json (RFC 9457), or by Options.Denied:
//
//	429  a limit has no room; Retry-After is whole seconds, rounded up
//	503  the store failed and Options.OnUnavailable is FailClosed; with Retry-After
//	403  Options.Block says so
//	400  the request has no key (ErrNoKey), or costs more than a limit has units and could never be admitted
//	500  the key function, the cost or the limits are wrong
//	499  the client has gone before the handler could run; nobody reads it but the access log
//
// A failure is never a 429: a client that is told to slow down would believe that it did something.
//
// # What is counted
//
// A layer counts requests, failures such as wrong passwords, or the requests in flight: see [Charge].
// Layers of all three kinds are decided together, and settled when the handler has returned.
package httplimit
