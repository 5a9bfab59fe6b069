// Package faulttest breaks real Redis servers while several goroutines ask them for units, records what
// was admitted, and holds the whole history against what Sash promises for the fault: see
// docs/guarantees.md. Its tests are all there is, and each runs with both client libraries.
//
// What every test relies on: a call that was admitted was charged; a call that failed may have been
// charged, once; a refusal was not. So a subject's charges are at least what was admitted, and at most
// that and what failed.
package faulttest
