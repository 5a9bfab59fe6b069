// Package modeltest compares every store with the definition, and shows on real Redis servers what the
// store promises about them. Its tests are all there is. They call a store from one goroutine, so make test runs them
// without the race detector; what needs it belongs into the package callers.
package modeltest
