//go:build race

package modeltest

// mutantStep is larger under the race detector, which says nothing about broken scripts and makes a judge slow: .ci/run
// tests every mutant without it.
const mutantStep = 8
