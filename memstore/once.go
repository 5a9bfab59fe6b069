package memstore

import "example.com/sash/driver"

// A call names a call that may be repeated.
type call struct {
	subject id
	name    string
}

// A memo is the answer to a call, and until when it is remembered.
type memo struct {
	answer driver.Answer
	until  int64
}

// Calls remembers answers for driver.RepeatTime. It is empty if only most is set.
type calls struct {
	most    int // at least 1
	answers map[call]memo
	order   []due // in order of arrival: expired ones come first, unless the clock went back
}

type due struct {
	call  call
	until int64
}

// find returns the remembered answer to a call.
func (c *calls) find(now int64, of call) (driver.Answer, bool) {
	a, ok := c.answers[of]
	if !ok || a.until <= now {
		return driver.Answer{}, false
	}
	return a.answer, true
}

// add remembers an answer. It forgets a few expired answers, and the oldest if there are too many.
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

// drop forgets the oldest answer, unless the same call has a later one.
func (c *calls) drop() {
	first := c.order[0]
	c.order[0] = due{} // release its strings
	c.order = c.order[1:]
	if c.answers[first.call].until == first.until {
		delete(c.answers, first.call)
	}
}
