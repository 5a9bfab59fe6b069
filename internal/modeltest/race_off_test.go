//go:build !race

package modeltest

// mutantStep is which of the mutants are tested: every one.
const mutantStep = 1
