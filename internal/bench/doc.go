// Package bench holds no code. The packages below it measure Sash beside its alternatives, in alternating
// rounds on one machine:
//
//	netbench       decisions through a client, from many goroutines, on a real redis-server
//	servicebench   sash serve over gRPC and HTTP, beside Envoy's own service
//	redisbench     server time and memory of a decision on a real redis-server
//	gobench        limiters inside one Go process
//	regionbench    one limit over several regions, whose ways to the home are slow and break
//	rivals         limiters of other languages, each in a program of its own
//
//	load           calls from many goroutines, and how fast the answers come
//	scaling        the arithmetic of docs/scaling.md, from the tables of docs/benchmarks-scale.md
//	exactness      the units that a limiter admits in its worst window
//	server         the redis-server that is measured, and its own statistics
//	instructions   a redis-server and this program under valgrind, which counts what they execute
//	report         figures, tables and plots, and the page that shows them
//	cmd/sashbench  runs the benchmarks and writes a page of docs
//
//	servers         gets other versions of Redis and Valkey
//	cmd/servertest  runs the tests of the store on them, and writes a table into docs/guarantees.md
//
// Each package that measures keeps its part of the page, the method and the place of each table, in page.md.
package bench
