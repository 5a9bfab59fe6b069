// Package arch has no code, only a test: who may import whom in this repository.
//
//	driver  <-  sash  <-  memstore, redisstore, ...  <-  adapters  <-  service
//
// Package driver imports nothing of sash: it is what stores and limiters exchange. The root package imports
// only driver, and so does internal/window, the arithmetic of the algorithms. The other packages of the root
// module are siblings: they import these three and not each other, so that a program takes only those that it
// uses. Adapters, modules of their own, add a client library to one sibling. The service puts things together:
// it alone reads the environment and logs. Tests may import any package that is not internal
// to another module.
//
// The root module requires no other module, so that a library that depends on sash depends on nothing
// more.
package arch
