// Package sash is a rate limiter whose window really slides: at most N units in any trailing window, decided in memory or on Redis.
//
//	store := memstore.New(nil)
//	limiter, err := sash.New(store, nil, sash.PerMinute(60))
//	...
//	res, err := limiter.Allow(ctx, sash.Key("user", id))
//	if err != nil {
//		// the call was wrong, or the store failed
//	}
//	if !res.Allowed {
//		// retry after res.RetryAfter
//	}
//
// A [Limit] is a number of units and a window. A [Limiter] is a store and one or more limits; a call is
// admitted when every limit has room, and is then charged to all. A [Result] says what is left, and for
// a refusal which limit refused and when the same call would be admitted: exactly, for the cost asked.
//
// For a cost that is known only afterwards, [Limiter.Reserve] charges an estimate that is corrected later.
//
// # Stores
//
// The package memstore keeps charges in this process. The package redisstore keeps them on Redis or Valkey, shared by any number of
// processes, through the client of your choice: see the modules goredisstore and rueidisstore.
//
// # Guarantees
//
// For every instant t on the store's clock, the units admitted in (t - Window, t] are at most Units. A charge made exactly Window ago has
// left. This holds for the algorithms [SlidingLog], [SortedSetLog] and [SlidingBuckets]; the others are for programs that migrate from
// them, and say what they may admit.
package sash
