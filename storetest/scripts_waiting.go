package storetest

import (
	"time"
)

// waitingCases are the cases of callers who come back later: bookings, blocks and cool-downs.
var waitingCases = []testCase{
	scriptOf("a booking starts when there is room",
		"a booking starts at the first microsecond at which it fits, and what remains is as of then, with times from now", nil, "3/10s", `
		book 1h k 2: delay 0s
		1s book 1h k 1: delay 0s
		book 1h k 2: delay 9s left 0 reset 19s
		book 1h k 1: delay 10s
		book 1h k 3: delay 20s`),
	scriptOf("bookings start in order",
		"a booking goes behind every booking before it, also one that would fit earlier", nil, "10/10s", `
		book 1h k 6: delay 0s
		book 1h k 5: delay 10s
		book 1h k 1: delay 10s
		book 1h k 4: delay 10s
		book 1h k 1: delay 20s`),
	scriptOf("a booking is not farther away than it may be",
		"what cannot start within its time is refused, and charges nothing; its retry time is the time until it could", nil, "5/10s 100/20s", `
		book 1h k 5
		1s book 8.999999s k 2: no retry 9s by 5/10s
		book 8.999999s k 2: no retry 9s by 5/10s
		book 9s k 5: delay 9s`),
	scriptOf("a call goes ahead of bookings that it does not delay",
		"a call that is not booked is admitted if no window that ends at a booking then exceeds its own limits; otherwise it is refused for the time until it fits behind them", nil, "8/10s", `
		book 1h k 8
		book 1h k 8: delay 10s
		5s peek k under 10/10s: left 2
		2x allow k 1 under 10/10s
		allow k 1 under 10/10s: no retry 10s
		allow k 1 under 1/1s: no
		10s allow k 2 under 10/10s`),
	scriptOf("bookings under several limits",
		"a booking starts when every limit has room, those of the calendar, too", calendar, "3/10s 6/hour@UTC", `
		3570s book 24h k 2
		book 24h k 3: delay 10s
		book 24h k 2: delay 30s
		book 24h k 1: delay 30s
		book 24h k 3: delay 40s
		book 24h k 1: delay 1h0m30s
		book 1h k 1: no retry 1h0m30s`),
	scriptOf("several subjects are booked for one instant",
		"a booking over several subjects starts when all have room behind the bookings of each, or charges none", nil, "2/10s", `
		book 1h {t}a 2
		1s book 1h {t}b 2
		book 1h {t}b 1: delay 10s
		bookall 19.999999s {t}a:1 {t}b:2 {t}c:1: no retry 20s by {t}b
		bookall 20s {t}a:1 {t}b:2 {t}c:1: delay 20s
		book 1h {t}a 1: delay 20s
		book 1h {t}a 1: delay 30s
		all {t}a:2 {t}d:2: no retry 40s by {t}a`),
	scriptOf("a booking is repeated with its ID",
		"a booking that is repeated with its ID keeps its place and charges nothing, until RepeatTime after it has started", nil, "1/10s", `
		allow k 1
		first = bookonce 1h id k 1: delay 10s
		book 1h k 1: delay 20s
		1s bookonce 1h id k 1: delay 9s as first
		308.999999s bookonce 1h id k 1: delay 0s as first
		2s bookonce 1h id k 1: delay 0s`),
	scriptOf("a booking is given back",
		"a booking that is given back makes room for the next one that fits there, and nobody moves", nil, "4/10s", `
		book 1h k 4
		first = book 1h k 4: delay 10s
		book 1h k 4: delay 20s
		third = book 1h k 3: delay 30s
		settle first 0
		settle third 1
		book 1h k 3: delay 10s
		book 1h k 3: delay 30s
		book 1h k 1: delay 10s
		10s allow k 4: no`),
	scriptOf("the end of the queue moves up",
		"when the last bookings are given back, the next one takes their place", nil, "1/10s", `
		a = book 1h k 1
		book 1h k 1: delay 10s
		c = book 1h k 1: delay 20s
		d = book 1h k 1: delay 30s
		e = book 1h k 1: delay 40s
		settle d 0
		settle c 0
		settle e 0
		book 1h k 1: delay 20s
		settle a 0
		allow k 1`),
	scriptOf("a reset forgets bookings",
		"after a reset no booking is ahead, and settling one from before it changes nothing", nil, "1/10s", `
		book 1h k 1
		before = book 1h k 1: delay 10s
		reset k
		1us book 1h k 1: delay 0s
		9.999999s book 1h k 1: delay 1us
		settle before 0
		book 1h k 1: delay 10.000001s
		settle before 5
		book 1h k 1: delay 20.000001s`),
	scriptOf("a clock that goes back moves bookings with it",
		"when the clock goes back to well before the last charge, bookings move back as far, and none is forgotten", nil, "2/10s", `
		book 1h k 2
		1s first = book 1h k 2: delay 9s
		book 1h k 2: delay 19s
		-3s allow k 1: no retry 29s
		book 1h k 1: delay 29s
		settle first 0
		book 1h k 2: delay 39s`),
	scriptOf("a clock that goes back by a millisecond moves no booking",
		"when the clock goes back to at most a millisecond before the last charge, bookings keep their places", nil, "2/10s", `
		book 1h k 2
		1s book 1h k 2: delay 9s
		-1ms peek k
		1ms book 1h k 2: delay 19s`),
	scriptOf("before bookings",
		"AllowUpTo delays no booking, and Reward gives none back that lies ahead", nil, "10/10s", `
		allow k 8
		1s book 10s k 5: delay 9s
		upto k 9: charged 2
		reward k 100: charged 10 left 5
		upto k 9: charged 5
		penalize k 3: left 0`),

	scriptOf("a block",
		"the last of so many refusals within the window begins a block: every call is refused until it ends, and then counting begins anew", nil, "2/10s", `
		allow k 2
		2x allow k 1: no
		allow k 1: no blocked retry 2m
		119.999999s allow k 1: no blocked retry 1us left 0 by 2/10s
		peek k: blocked
		1us peek k: left 2
		allow k 2
		2x allow k 1: no
		allow k 1: no blocked`, blocks(3, window, 2*time.Minute)),
	scriptOf("what begins a block",
		"the refusals of calls that charge count, within the window and for their key; peeks do not", nil, "2/40s", `
		allow k 2
		2x allow k 1: no
		5x peek k
		3x allow other 2 under 1000/40s
		10s allow k 1: no
		allow k 1: no
		allow k 1: no blocked`, blocks(3, window/2, time.Minute)),
	scriptOf("a block is lifted", "Reset ends a block and forgets the refusals that count", nil, "1/10s", `
		allow k 1
		allow k 1: no
		allow k 1: no blocked
		reset k
		allow k 1
		allow k 1: no
		reset k
		1ms allow k 1
		allow k 1: no
		allow k 1: no blocked`, blocks(2, window, time.Hour)),
	scriptOf("a block and other calls",
		"a call with an ID is repeated during a block, calls for as much as fits count, and a blocked call charges nothing", nil, "2/5m", `
		first = once id k 2
		allow k 2: no
		upto k 2: no
		allow k 1: no blocked
		upto k 2: no blocked charged 0
		once id k 2: as first
		once another k 2: no blocked`, blocks(3, window, time.Minute)),
	scriptOf("a block and what is given back",
		"penalties and rewards count as no refusal, and a reward gives back during a block as before", nil, "9/5m", `
		allow k 9
		penalize k 9
		3x reward k 1: charged 1
		allow k 9: no
		allow k 9: no blocked
		reward k 3: charged 3`, blocks(2, window, time.Minute)),
	scriptOf("several subjects and a block",
		"of several subjects those count that refuse, and one that is blocked refuses the call for all", nil, "2/10s", `
		allow b 2
		all a:1 b:1 c:1: no by b
		all a:1 b:1 c:1: no blocked
		10s all a:1 b:1: no blocked retry 50s by b
		all a:1 c:1: left 1`, blocks(2, window, time.Minute)),
	scriptOf("a block of one of several",
		"while one subject is blocked the refusals of the others count towards their own blocks", nil, "2/5m", `
		allow a 2
		allow b 2
		allow a 1: no
		allow a 1: no blocked
		2x all a:1 b:1 c:2: no blocked
		allow b 1: no blocked
		allow c 2`, blocks(2, window, time.Minute)),
	scriptOf("a block and a clock that goes back",
		"after a clock that went back a block lasts no longer than its length", nil, "1/10s", `
		allow k 1
		allow k 1: no blocked
		-1h allow k 1: no blocked retry 1m
		1m peek k`, blocks(1, window, time.Minute)),

	scriptOf("a cool-down lasts its length",
		"a cool-down lasts its length on the store's clock, for its key alone, and charges nothing", oneAlgorithm, "1/1m", `
		cooling k: length 0s ends 0s
		guess k 10s: guessed ends 10s
		4s cooling k: length 10s ends 6s guessed
		cooling other: length 0s ends 0s
		6.000001s cooling k: length 10s ends -1us guessed
		allow k 1
		cooling k: length 10s ends -1us guessed`),
	scriptOf("the cool-down that ends last holds",
		"a cool-down does not begin beside one that ends as late", oneAlgorithm, "1/1m", `
		guess k 11s: guessed ends 11s
		cool k 11s: guessed ends 11s
		2s cool k 20s: ends 20s
		2s guess k 5s: ends 18s
		cooling k: length 20s ends 18s
		19s guess k 1ms: guessed ends 1ms
		cooling k: length 1ms ends 1ms guessed`),
	scriptOf("a cool-down is kept after its end",
		"a cool-down is known until its end is as long ago as it lasted, and 10 seconds at least", oneAlgorithm, "1/1m", `
		cool short 1ms: ends 1ms
		10.000999s cooling short: length 1ms ends -9.999999s
		1us cooling short: length 0s
		cool long 25h: ends 25h
		49.9999999h cooling long: length 25h
		1s cooling long: length 0s`),
	scriptOf("a clock that goes back does not prolong a cool-down",
		"no caller waits longer than the length of the cool-down", oneAlgorithm, "1/1m", `
		cool k 10s
		cool ended 1s
		5s clock
		-1h cooling k: length 10s ends 10s
		cooling ended: length 1s ends 1s
		9s cooling k: length 10s ends 1s
		guess k 3s: guessed ends 3s`),
}
