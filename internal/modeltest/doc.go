// Package modeltest compares every store with the definition, and shows on real Redis servers what the
// store promises about them. Its tests are all there is. They call a store from one goroutine, or from processes of their own,
// so make test runs them without the race detector.
package modeltest
