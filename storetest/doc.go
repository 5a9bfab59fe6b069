// Package storetest is the suite of tests that every [driver.Store] passes, decorators included: call [Run]
// from a test with a harness over the store. Each case that fails says which promise was broken.
//
// A store's harness has a clock that the suite moves, so that no case waits. A store whose clock is a
// server's gives its harness a build whose time is an argument, as the tests of redisstore do.
//
// [CheckHistory] and [CheckRefusals] judge what a store did under real concurrency and in real time, from
// a history of what it admitted and refused. Package oracle, below this one, is the definition that
// answers are compared with.
package storetest
