package storetest

import (
	"time"

	"example.com/sash"
)

func notGCRA(a sash.Algorithm) bool    { return a != sash.GCRA } // which gives units back all the time, and rounds them
func notCounter(a sash.Algorithm) bool { return a != sash.SlidingCounter }
func counted(a sash.Algorithm) bool    { return a != sash.GCRA && a != sash.SlidingCounter }
func extends(a sash.Algorithm) bool    { return a == sash.SlidingLog || a == sash.SlidingBuckets }

func oneAlgorithm(a sash.Algorithm) bool { return a == sash.SlidingLog }

func blocks(refusals int, window, length time.Duration) sash.Options {
	return sash.Options{Block: sash.Block{Refusals: refusals, Window: window, For: length}}
}

var countRefused = sash.Options{CountRefused: true}

// scriptCases are the cases that need only one caller.
var scriptCases = []testCase{
	scriptOf("units are admitted and no more",
		"a limit of N units admits N units in an instant, and not one more, and a peek charges nothing", nil, "5/10s", `
		10x peek k: left 5 retry 0s reset 0s
		allow k 1: left 4
		1us allow k 3: left 1
		1us allow k 1: left 0
		peek k: left 0 retry 0s
		allow k 1: no left 0 by 5/10s
		21s peek k: left 5 reset 0s
		allow k 5`),
	scriptOf("the edge of the window",
		"a charge leaves exactly one window after it was made; one microsecond earlier it counts", exact, "5/10s", `
		allow k 5
		9.999999s allow k 1: no retry 1us
		1us allow k 5`),
	scriptOf("retry after looks as deep as the cost",
		"RetryAfter depends on the cost of the call, not on the oldest charge", exact, "3/10s", `
		allow k 1
		1s allow k 1
		1s allow k 1
		8s allow k 2: no retry 1s
		allow k 3: no retry 2s`),
	scriptOf("a refusal charges nothing", "a refused call charges nothing, so it starves no caller", nil, "10/10s", `
		allow k 7
		20x allow k 9: no left 3
		allow k 3`),
	scriptOf("refused calls can be charged",
		"with CountRefused a caller that never stops is never admitted again", exact, "3/10s", `
		allow k 3
		40x 1s allow k 1: no
		8.073s allow k 1`, countRefused),
	scriptOf("every limit must have room",
		"a call is admitted if every limit has room, and then charged to all of them, otherwise to none", notGCRA, "3/10s 5/1m", `
		allow k 3
		20s allow k 1: left 1
		allow k 2: no left 1 by 5/1m
		peek k under 3/10s: left 2
		allow k 1: left 0`),
	scriptOf("limits can change",
		"the limits are those of the call: charges made under other limits of the same window count", notGCRA, "10/10s", `
		allow k 5
		allow k 1 under 3/10s: no left 0
		peek k under 3/10s: left 0
		peek k: left 5
		allow k 5`),
	scriptOf("windows can change",
		"no charge inside the longest window that a subject was charged under is forgotten, whatever windows come between", exact, "100/1s 40/1h", `
		allow k 1
		30x 1m allow k 1 under 100/1s
		peek k: left 9`),
	scriptOf("a call does not join one from before a boundary",
		"calls on two sides of a calendar boundary are counted apart, even where calls share entries", calendar, "5/hour@UTC 100/10s", `
		1h clock
		-1us allow k 4
		1us allow k 1
		peek k under 5/hour@UTC: left 4`),
	scriptOf("a subject can be forgotten",
		"Reset removes every charge of a subject, and of no other", nil, "5/10s 7/20s", `
		allow a 5
		allow b 5
		reset a
		peek a: left 5
		peek b: left 0
		allow a 5`),
	scriptOf("several subjects, all or nothing",
		"several subjects are charged if all have room, and otherwise none of them", nil, "5/10s", `
		allow b 4
		all a:2 b:2: no by b
		peek a: left 5
		all a:2 b:1: left 0
		peek a: left 3`),
	scriptOf("the wait is for all subjects",
		"RetryAfter of a decision over several subjects is the time until all of them have room", exact, "3/10s", `
		allow a 2
		5s allow b 3
		all a:2 b:1: no retry 10s by b
		9.999999s all a:2 b:1: no retry 1us
		1us all a:2 b:1`),

	scriptOf("a clock that goes back admits no more",
		"when the clock goes back, no charge that counted is forgotten", counted, "5/10s", `
		5s allow k 5
		-1us allow k 1: no
		-1s allow k 1: no
		-10s allow k 1: no
		-1h allow k 1: no`),
	scriptOf("a clock that goes back locks no caller out",
		"when the clock goes back, no caller waits longer than the window", notCounter, "5/10s", `
		5x 1us allow k 1
		-1h allow k 5: no
		10s allow k 5`),
	scriptOf("charges are dated anew once",
		"a charge later than now counts as made now, and leaves a window after that", exact, "5/10s", `
		allow k 2
		3s allow k 3
		-2s allow k 3: no retry 10s
		allow k 2: no retry 9s`),
	scriptOf("a clock that jumps forward",
		"a clock that jumps forward frees the charges that are then out of the window, and no others", exact, "5/10s", `
		allow k 2
		4s allow k 3
		6s peek k: left 2
		720h allow k 5`),

	scriptOf("a charge can be settled",
		"settled units are free at once, others stay charged, and more than the estimate is charged without room", nil, "10/10s", `
		allow k 3
		1us r = reserve k 4
		1us allow k 2
		settle r 0
		peek k: left 5
		s = reserve k 1
		settle s 100
		allow k 1: no left 0`),
	scriptOf("settling is idempotent",
		"a settlement is applied once, however often it is repeated and whatever happens in between", nil, "10/10s", `
		allow k 2
		1us r = reserve k 4
		1us s = reserve k 1
		2x settle r 1 one
		2x settle s 3 two
		peek k: left 4
		allow k 1
		settle r 1 one
		settle s 3 two
		peek k: left 3`),
	scriptOf("settling what has left is harmless",
		"a settlement of a charge that has left the window changes nothing, up or down", nil, "10/10s", `
		1us r = reserve k 4
		40s allow k 6
		settle r 0 down
		settle r 100 up
		peek k: left 4`),
	scriptOf("settling after a reset",
		"a settlement of a charge from before a reset changes nothing, up or down, whatever was charged since", nil, "10/10s", `
		allow k 3
		1us r = reserve k 4
		reset k
		settle r 0 nothing
		1us allow k 4
		1us allow k 2
		2x settle r 0 down
		2x settle r 100 up
		peek k: left 4`),
	scriptOf("settling after a clock that went back",
		"a charge moved by a clock that went back takes nothing from others when it is given back", exact, "10/10s", `
		allow k 5
		1us r = reserve k 4
		-1s peek k
		9.999999s peek k: left 1
		73.001ms allow k 7
		settle r 0
		peek k: left 3`),
	scriptOf("calls of one instant are settled apart",
		"calls charged in the same microsecond can each be settled, once", nil, "100/10s", `
		a = reserve k 50
		b = reserve k 50
		reserve k 1: no
		2x settle a 6 a
		2x settle b 12 b
		peek k: left 82`),

	scriptOf("a charge can be extended",
		"a charge that is extended takes no more room now, and stays a window longer, until it is given back; others leave as they would have", extends, "10/10s", `
		allow k 5
		1us r = reserve k 4
		5s extend r
		peek k: left 1
		9.999999s peek k: left 6
		extend r
		settle r 0
		peek k: left 10`),
	scriptOf("a booking is brought forward",
		"a booking that has room now without it, and delays no other, starts now when it is extended; without room it stays", extends, "10/10s", `
		r = reserve k 9
		b = book 60s k 9: delay 10s
		c = book 60s k 9: delay 20s
		1s extend b: gone
		settle r 0
		extend c: gone
		extend b
		extend c: gone
		allow k 2: no
		settle b 1
		extend c
		peek k: left 0 reset 10s
		10s peek k: left 10`),
	scriptOf("bookings of several subjects are brought forward together",
		"bookings of several subjects start now when all have room, and stay, each as it was, when one has none or is gone", extends, "10/10s", `
		r = reserve {t}a 9
		s = reserve {t}b 9
		b = bookall 60s {t}a:9 {t}b:8: delay 10s
		c = bookall 60s {t}a:1 {t}b:9: delay 20s
		1s extend b: gone
		settle s 0
		extend b: gone
		peek {t}a: left 1
		book 60s {t}b 2: delay 0s
		settle r 0
		extend c: gone
		extend b
		peek {t}a: left 1
		peek {t}b: left 0
		reset {t}b
		extend c: gone`),
	scriptOf("a charge that is gone cannot be extended",
		"a charge that has left its window or was removed by a reset is not extended, and nothing is charged", extends, "10/10s", `
		r = reserve k 4
		10.073s extend r: gone
		allow k 2
		extend r: gone
		1us s = reserve k 4
		reset k
		extend s: gone
		1us allow k 5
		extend s: gone
		peek k: left 5`),
	scriptOf("the last charge is gone",
		"charges of several subjects are extended together, and when one is gone, each stays as it was and can be settled", extends, "10/10s", `
		r = bookall 60s {t}a:4 {t}b:3: delay 0s
		5s reset {t}b
		extend r: gone
		peek {t}a: left 6
		settle r 0
		peek {t}a: left 10`),
	scriptOf("a charge that was settled cannot be extended",
		"a charge is gone once its settlement was applied, also where others share its instant, and an extension applies it", extends, "10/10s", `
		a = reserve k 3
		b = reserve k 3
		settle a 0 x
		extend a x: gone
		1s extend b y
		settle b 0 y
		peek k: left 7
		settle b 0 z
		peek k: left 10`),

	scriptOf("a repeated call is charged once",
		"an admitted call that is repeated with its ID is admitted as of the same instant, under any limits, and charges nothing", nil, "10/10s", `
		first = once id k 4: left 6
		allow k 6
		1ms once id k 4: left 0 as first
		once id k 9: as first
		once id k 4 under 5/10s: as first
		once id k 4 under 20/10s 30/20s: as first
		peek k: left 0`),
	scriptOf("a refused call is decided anew",
		"a refusal charges nothing and is not remembered: the same call is admitted once there is room", nil, "10/10s", `
		allow k 10
		once id k 3: no
		20s once id k 3: left 7`),
	scriptOf("a refusal that is charged is remembered",
		"where refused calls are charged, a repeated one is charged once, too", exact, "10/10s", `
		allow k 8
		5s once id k 3: no
		once id k 3: no
		5.073s peek k: left 7`, countRefused),
	scriptOf("an ID is remembered for its time",
		"a charge is remembered for RepeatTime, even after it has left its window, whatever limits come, and not for ever", nil, "10/10s", `
		first = once id k 4
		10s allow k 4
		9s once other k 1 under 20/20s
		280.999999s once id k 4: as first
		2s once id k 4: left 6`),
	scriptOf("a log grows over a call with an ID",
		"a call is remembered for RepeatTime, whatever other calls bring and however a log grows", nil, "200/1s", `
		first = once id k 1
		100x 7812us allow k 1
		50x 7812us allow k 1 under 400/2s 500/3s
		295s allow k 1
		1s once id k 1 under 400/2s 500/3s: as first`),
	scriptOf("a reset forgets IDs", "after a reset a repeated call is a new one", nil, "10/10s", `
		once id k 4
		reset k
		1s once id k 3: left 7`),

	scriptOf("as much as fits",
		"AllowUpTo charges what is left, up to the cost, and a refusal is one of a single unit", nil, "10/10s 12/30s", `
		upto k 4: charged 4 left 6
		upto k 100: charged 6 left 0
		upto k 7: no charged 0
		1m upto k 7: charged 7`),
	scriptOf("as much as fits, where refused calls are charged",
		"with CountRefused a call for as much as fits that is refused charges one unit", exact, "3/10s", `
		upto k 5: charged 3
		5s upto k 5: no charged 0
		5s peek k: left 2`, countRefused),
	scriptOf("a penalty",
		"Penalize charges whether or not there is room, and nothing is admitted until enough has left", nil, "10/10s", `
		penalize k 4: left 6
		1s penalize k 20: left 0
		allow k 1: no
		20s allow k 10
		penalize k 4294967295: left 0
		allow k 1: no`),
	scriptOf("a penalty that is given back",
		"a penalty forgets nothing: when it is given back, what was charged before still counts", exact, "10/10s", `
		10x 146ms allow k 1
		5x 146ms penalize k 20
		reward k 100: charged 100
		peek k: left 0`),
	scriptOf("units are given back",
		"Reward frees units at once, as many as are charged and no more", nil, "100/10s 1000/30s", `
		reward k 7: charged 0
		20x 1us allow k 4
		reward k 1: charged 1
		reward k 33: charged 33 left 54
		peek k: left 54
		allow k 54
		reward k 1000: charged 100
		allow k 100`),
	scriptOf("the oldest units are given back",
		"Reward takes units from the charges that leave first, so that the others leave no earlier", exact, "4/10s", `
		4x 1s allow k 1
		reward k 2: charged 2
		allow k 3: no retry 9s
		allow k 2`),
	scriptOf("what has left is not given back",
		"Reward takes nothing from charges that count no more in the limits, and what longer limits count stays", exact, "10/10s", `
		allow k 6 under 20/40s
		20s reward k 6: charged 0
		allow k 5
		reward k 6: charged 5
		peek k under 20/40s: left 14`),

	scriptOf("any: most room",
		"of several subjects the one with most room is charged, and a refusal is that of the one with the shortest wait", counted, "10/10s", `
		allow a 5
		any a:2 b:2: chosen 1 left 8
		any c:2 a:2 b:2: chosen 0 left 8
		peek a: left 5
		any a:9 b:9: no`),
	scriptOf("any: the shortest queue",
		"a call for which there is room nowhere is refused for as long as it takes until one subject has room", exact, "10/10s", `
		allow a 10
		1s allow b 10
		any b:1 a:1: no chosen 1 retry 9s
		9s any b:1 a:1: chosen 1`),
}
