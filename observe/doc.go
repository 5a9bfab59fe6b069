// Package observe has observers for limiters: [Log] for log/slog, [Metrics] and [Spans] for OpenTelemetry, and [All] for
// several of them.
//
//	metrics, err := observe.Metrics(nil)
//	...
//	opts := &sash.Options{Prefix: "api", Observer: observe.All(observe.Log(slog.Default()), metrics, observe.Spans(nil))}
//
// Observers receive no keys, so they do not learn who was limited: see [sash.Observer]. They are safe for
// concurrent use and need no closing. The caller of a limiter waits for them, a few microseconds for each.
//
// OpenTelemetry has no semantic conventions for rate limiting, except those of one framework (aspnetcore.rate_limiting).
// The names here have the prefix "sash", and equal those in the spans of `sash serve` where both exist. As its conventions
// require, durations are in seconds. error.type is the class of an error, and is absent if there is none.
//
//	sash.prefix       the limiter: [sash.Decision].Prefix
//	sash.outcome      allowed; refused; uncounted, admitted while the store did not answer, and not counted; or error
//	sash.source       where the result came from: store, cache, lease, own, local or policy
//	sash.limit        the limit that refused, by its name or as "300/1m"
//	sash.waiting      true if the caller waits, and may ask again after a refusal
//	sash.units        the cost; only in spans
//	sash.retry_after  seconds, of a refusal; only in spans
//	error.type        of an error: unavailable, deadline_exceeded, canceled, or _OTHER
package observe
