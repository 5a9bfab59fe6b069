// Package middleware contains what limits for any protocol share: functions that return the key of a request,
// layers of limits that count requests, failures or requests in flight, and the treatment of requests without a
// decision. The packages httplimit and grpclimit build on it, and so can a middleware for another protocol.
//
// A [KeyFunc] and a [Gate] are generic over the request. With a type Message of a queue's client:
//
//	tenant := middleware.Field[*Message]{Kind: "attribute", Name: "tenant", Values: (*Message).Attribute}
//	key := middleware.FirstOf(tenant.Key(), middleware.Shared[*Message]("anonymous"))
//	gate, err := middleware.NewGate(limiter, []middleware.Layer[*Message]{{Key: key}}, middleware.GateOptions[*Message]{})
//	...
//	d, err := gate.Decide(ctx, message)
//	if err != nil {
//		switch middleware.FailureOf(err) {
//		...
package middleware
