// Package bench has nothing of its own: the programs and packages below it measure Sash beside what
// else there is, in alternating rounds on the same machine.
//
//	report      figures, tables, and their form as text and Markdown
//	redisbench  server time and memory on a real redis-server
//	gobench     in-process limiters in Go
//	cmd/sashbench  runs them all and writes docs/benchmarks.md
package bench
