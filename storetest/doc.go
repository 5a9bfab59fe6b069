// Package storetest is the conformance suite for every [driver.Store], decorators included: call [Run] from a
// test with a harness over the store. A case that fails reports the promise that the store broke.
//
// The harness of a store has a clock that the suite moves, so that no case waits. If the clock is a server's, the
// harness uses a build that takes the time as an argument, as the tests of redisstore do.
//
// Tests of a program that uses a store need [Faulty], a store that fails, hangs, is slow or refuses on demand.
package storetest
