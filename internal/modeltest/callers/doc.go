// Package callers shows, on real Redis servers, what many callers at once get, in goroutines and in several processes. Its
// tests are all there is.
package callers
