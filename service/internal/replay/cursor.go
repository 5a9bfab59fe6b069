package replay

import (
	"fmt"
	"hash/crc32"
)

// A cursor reads events in order. It merges the runs: their next events are a heap.
type cursor struct {
	from *events
	heap []source
	err  error
}

// A source is the rest of a run.
type source struct {
	blocks []block // the first is the one that data is of
	data   []byte  // nil before the block is loaded
	buffer []byte  // for blocks in the file
	next   event   // until the block is loaded, just its time and order
}

func (s *events) cursor() *cursor {
	c := &cursor{from: s}
	for i := range s.runs {
		if r := &s.runs[i]; len(r.blocks) > 0 {
			c.heap = append(c.heap, source{blocks: r.blocks, next: event{at: r.blocks[0].at, order: r.blocks[0].order}})
		}
	}
	for i := len(c.heap)/2 - 1; i >= 0; i-- {
		c.down(i)
	}
	return c
}

// next returns the next event. It reports false at the end, and if err is set.
func (c *cursor) next() (event, bool) {
	if len(c.heap) == 0 {
		return event{}, false
	}
	s := &c.heap[0]
	if s.data == nil {
		if c.err = s.load(c.from); c.err != nil {
			c.heap = nil
			return event{}, false
		}
	}
	e := s.next
	switch {
	case len(s.data) > 0:
		s.data = s.data[unpack(s.data, &s.next):]
	case len(s.blocks) > 1:
		s.blocks, s.data = s.blocks[1:], nil
		s.next = event{at: s.blocks[0].at, order: s.blocks[0].order}
	default:
		last := len(c.heap) - 1
		c.heap[0] = c.heap[last]
		c.heap[last] = source{}
		c.heap = c.heap[:last]
	}
	c.down(0)
	return e, true
}

// load loads the first block, and reads its first event.
func (s *source) load(from *events) error {
	b := &s.blocks[0]
	s.data = b.data
	if b.data == nil {
		s.buffer = append(s.buffer[:0], make([]byte, b.size)...)
		if err := from.spilled.read(s.buffer, b.offset); err != nil {
			return err
		}
		if crc32.Checksum(s.buffer, castagnoli) != b.checksum {
			return fmt.Errorf("the temporary file of requests, %s, was changed", from.spilled.name)
		}
		s.data = s.buffer
	}
	s.next = event{at: b.at, order: b.order - 1}
	s.data = s.data[unpack(s.data, &s.next):]
	return nil
}

// down moves a source down the heap to its place.
func (c *cursor) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(c.heap); child++ {
			if inOrder(c.heap[child].next, c.heap[least].next) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		c.heap[i], c.heap[least] = c.heap[least], c.heap[i]
		i = least
	}
}
