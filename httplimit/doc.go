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
// The Prefix keeps the keys of this limiter apart from those of other limiters on the store. OnError receives
// the errors of a store that fails and of a key function that is wrong; nothing else reports them.
//
// New and [NewLayers] return a func(http.Handler) http.Handler, which chi and every other router of net/http
// accepts as a middleware. A [KeyFunc] returns the key that a request is charged to. A [Layer] adds limits on
// another subject. The store decides on all layers in one step, all or nothing.
//
// # Answers
//
// An admitted request reaches the handler, and its response has fields that report what is left (see [Dialect]).
// Other requests get an application/problem+json answer (RFC 9457), or the answer of Options.Denied:
//
//	429  a limit has no room; Retry-After is whole seconds, rounded up
//	503  the store failed, unless Options.FailOpen; with Retry-After
//	400  the request has no key (ErrNoKey) or a bad one (ErrBadKey), or costs more units than a limit has, so that it can never be admitted
//	500  the key function, the cost or the limits are wrong
//	499  the client left before the handler could run; only the access log shows it
//
// A failure is never a 429: that would blame the client.
//
// # What is counted
//
// A layer counts requests, failures such as wrong passwords, or the requests in flight: see [Charge]. The store
// decides on layers of all three kinds together. The middleware settles the charges when the handler has
// returned.
package httplimit
