// Package routers has no code, only tests: a limit under each of the routers and frameworks that Go programs use.
//
//	chi      a middleware of net/http as it is
//	Gin      an adapter of a dozen lines
//	Echo     an adapter of eight lines, so that errors of handlers count as what they become
//	Fiber    an adapter over its own, which is enough to count requests, and no more
//	Connect  a middleware of net/http, whose refusals each protocol reads as resource_exhausted. Where a layer charges
//	         failures, an interceptor over [middleware.Gate] decides, because gRPC answers 200 whatever the code is
//
// All of them limit an address to 2 requests a minute on each route: [httplimit.Pattern] returns "/items/{id}", or however
// the router writes it, so that /items/1 and /items/2 are one route.
package routers
