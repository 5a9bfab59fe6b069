// Package driver is what a store implements, and what it gets and returns. Programs that only limit calls
// need the packages sash and a store; authors of stores and of decorators need this one.
//
// A store has one method, Decide: one [Request] in, one atomic decision, one [Answer] out. What else a
// backend can do is an optional interface, a power: [MultiStore], [Chooser], [Deduplicator], [Settler], [Extender],
// [Resetter], [Taker], [Booker], [Blocker], [Batcher] and [Cooler].
// A [Decorator] is a store over a store. Embedding a [Passthrough] gives it every power of the store behind
// it, so that it defines only the methods that it changes:
//
//	type logged struct{ driver.Passthrough }
//
//	func (l *logged) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
//		answer, err := l.Next.Decide(ctx, req)
//		slog.DebugContext(ctx, "decided", "key", req.Key, "allowed", answer.Allowed(), "error", err)
//		return answer, err
//	}
//
// Times are whole microseconds as int64, since the Unix epoch or as a length: the precision of the Redis
// clock. The package storetest has the conformance suite that every store and decorator passes.
package driver
