// Package arch has no code, only a test: who may import whom in this repository.
//
//	internal/window  <-  sash  <-  memstore, redisstore, ...  <-  adapters  <-  service
//
// internal/window is arithmetic and imports nothing of sash. The root package imports only that. The
// other packages of the root module are siblings that know the root package and not each other, so that
// whoever takes one of them takes no other. Adapters, modules of their own, add a client library to one
// sibling. The service puts things together: it alone reads the environment and logs. Tests may
// import what they like.
//
// The root module requires no other module, so that a library that depends on sash depends on nothing
// more.
package arch
