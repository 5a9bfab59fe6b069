// Package judge says what is right. A [History] of calls is checked against the definition of a limit: no window holds more
// units than the limit, no refusal is needless, and every wait is the shortest. [Fullest] finds the most units in any window,
// also where the instants are uncertain, and [Overtaken] who was overtaken in a queue. The tests use them, and sash verify.
package judge
