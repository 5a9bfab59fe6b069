// Package middleware has what the limits in front of any protocol share: functions that return the key of a
// request, and what happens to a request for which there is no decision. The packages httplimit and
// grpclimit build on it, and so can a middleware for another protocol.
//
// A [KeyFunc] is generic over the request. With a type Message of a queue's client:
//
//	tenant := middleware.Field[*Message]{Kind: "attribute", Name: "tenant", Values: (*Message).Attribute}
//	key := middleware.FirstOf(tenant.Key(), middleware.Shared[*Message]("anonymous"))
//	...
//	k, limited, err := key.Resolve(message)
//	if err == nil && limited {
//		err = middleware.Within(ctx, 0, func(ctx context.Context) (err error) {
//			res, err = limiter.Allow(ctx, k)
//			return err
//		})
//	}
//	if err != nil {
//		switch middleware.FailureOf(err) {
//		...
package middleware
