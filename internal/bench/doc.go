// Package bench has nothing of its own: the programs and packages below it measure Sash beside what
// else there is, in alternating rounds on the same machine.
//
//	report      figures, tables and plots, and their form as text, Markdown and SVG
//	exactness   what a limiter admits in its worst window
//	netbench    decisions through a client, from many goroutines, on a real redis-server
//	redisbench  server time and memory on a real redis-server
//	gobench     in-process limiters in Go
//	cmd/sashbench  runs them all and writes docs/benchmarks.md
package bench
