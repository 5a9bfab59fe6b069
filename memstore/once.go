package memstore

import "example.com/sash/driver"

// A call is one that its caller may repeat.
type call struct {
	subject id
	name    string
}

// A memo is the answer that a call got, and until when it is remembered.
type memo struct {
	answer driver.Answer
	until  int64
}

// Calls remembers answers for driver.RepeatTime. It is empty when most is all that is set.
type calls struct {
	most    int // at least 1
	answers map[call]memo
	order   []due // as they came: those that are over are in front, unless the clock went back
}

type due struct {
	call  call
	until int64
}

// find returns the answer that a call has got.
func (c *calls) find(now int64, of call) (driver.Answer, bool) {
	a, ok := c.answers[of]
	if !ok || a.until <= now {
		return driver.Answer{}, false
	}
	return a.answer, true
}

// add remembers an answer, and forgets some that are over, and the oldest when there are too many.
func (c *calls) add(now int64, of call, answer driver.Answer) {
	for range 4 {
		if len(c.order) == 0 || c.order[0].until > now {
			break
		}
		c.drop()
	}
	if len(c.order) >= c.most {
		c.drop()
	}
	if c.answers == nil {
		c.answers = make(map[call]memo)
	}
	until := now + driver.RepeatTime.Microseconds()
	c.answers[of] = memo{answer, until}
	c.order = append(c.order, due{of, until})
}

// drop forgets the oldest answer, unless the same call has got another since.
func (c *calls) drop() {
	first := c.order[0]
	c.order[0] = due{} // lets its strings go
	c.order = c.order[1:]
	if c.answers[first.call].until == first.until {
		delete(c.answers, first.call)
	}
}
