package replay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// Sizes say when events are sorted, packed, written and merged. Tests make them small.
type sizes struct {
	batch int // events that are sorted together
	block int // bytes
	runs  int // more of them are merged into one
}

var defaultSizes = sizes{batch: 1 << 17, block: 1 << 16, runs: 256}

// An event is one request.
type event struct {
	at, cost      int64  // at is in microseconds since the epoch
	order         uint64 // in which it was added
	client, route uint32
	class         uint8
}

func inOrder(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order)) }

// The events of a trace are packed into sorted runs, about 8 bytes each. A log in time order is a single run. Every
// event goes to the run with the latest end that it can continue:
//
//	added    1 2 4 5 3 6 8 7 9      runs    1 2 4 5 6 8 9
//	                                        3 7
//
// Hence events that are a little late make a second, short run, and each of several overlapping logs makes one more.
// Cursors merge the runs. Blocks of runs are in memory until they are written to a file.
type events struct {
	sizes
	folder  string
	runs    []run // the one with the latest end first
	held    int64 // bytes of blocks in memory
	spilled *spillFile
}

// A run holds events in order, in blocks.
type run struct {
	blocks  []block
	written int // blocks that are in the file: the first ones
	open    []byte
	openKey event // the first of the open block
	last    event
}

// A block is packed events: in memory, or in the file.
type block struct {
	at       int64 // of the first event
	order    uint64
	data     []byte // nil when written
	offset   int64
	size     int
	checksum uint32
}

// add adds a batch of events in order, later added than all before.
func (s *events) add(batch []event) {
	for i := range s.runs {
		r := &s.runs[i]
		from, _ := slices.BinarySearchFunc(batch, r.last, inOrder)
		s.extend(r, batch[from:])
		if batch = batch[:from]; len(batch) == 0 {
			return
		}
	}
	s.runs = append(s.runs, run{})
	s.extend(&s.runs[len(s.runs)-1], batch)
}

func (s *events) extend(r *run, batch []event) {
	for i := range batch {
		e := &batch[i]
		if len(r.open) == 0 {
			r.openKey = *e
			r.last = event{at: e.at, order: e.order - 1}
		}
		r.open = pack(r.open, &r.last, e)
		r.last = *e
		if len(r.open) >= s.block {
			s.close(r)
		}
	}
}

// close ends the open block of a run.
func (s *events) close(r *run) {
	if len(r.open) == 0 {
		return
	}
	r.blocks = append(r.blocks, block{at: r.openKey.at, order: r.openKey.order, data: bytes.Clone(r.open), size: len(r.open)})
	s.held += int64(len(r.open))
	r.open = r.open[:0]
}

// finish ends all blocks, so that cursors find every event.
func (s *events) finish() {
	for i := range s.runs {
		s.close(&s.runs[i])
		s.runs[i].open = nil
	}
}

// write writes all blocks to a temporary file.
func (s *events) write() error {
	if s.spilled == nil {
		var err error
		if s.spilled, err = newSpillFile(s.folder); err != nil {
			return err
		}
	}
	for i := range s.runs {
		r := &s.runs[i]
		s.close(r)
		r.open = nil
		for ; r.written < len(r.blocks); r.written++ {
			b := &r.blocks[r.written]
			var err error
			if b.offset, err = s.spilled.write(b.data); err != nil {
				return err
			}
			b.checksum = crc32.Checksum(b.data, castagnoli)
			s.held -= int64(b.size)
			b.data = nil
		}
	}
	return nil
}

// merge replaces the runs by a single one. At most the given number of bytes are in memory afterwards.
func (s *events) merge(most int64) error {
	s.finish()
	if s.held > most/2 {
		if err := s.write(); err != nil {
			return err
		}
	}
	merged := events{sizes: s.sizes, folder: s.folder, runs: make([]run, 1)}
	from := s.cursor()
	for e, ok := from.next(); ok; e, ok = from.next() {
		merged.extend(&merged.runs[0], []event{e})
		if merged.held > most/2 {
			if err := merged.write(); err != nil {
				merged.release()
				return err
			}
		}
	}
	if from.err != nil {
		merged.release()
		return from.err
	}
	s.release()
	*s = merged
	return nil
}

// release removes the file.
func (s *events) release() {
	if s.spilled != nil {
		s.spilled.close()
	}
	*s = events{sizes: s.sizes, folder: s.folder}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// What a packed event begins with: flags for what need not be written.
const (
	sameTime  = 1 << iota // as the event before
	nextOrder             // one more than the event before
	unitCost
	noClass
)

// pack appends an event, given the one before it in the block.
func pack(to []byte, before, e *event) []byte {
	flags := byte(0)
	if e.at == before.at {
		flags |= sameTime
	}
	if e.order == before.order+1 {
		flags |= nextOrder
	}
	if e.cost == 1 {
		flags |= unitCost
	}
	if e.class == 0 {
		flags |= noClass
	}
	to = append(to, flags)
	if flags&sameTime == 0 {
		to = binary.AppendUvarint(to, uint64(e.at-before.at))
	}
	if flags&nextOrder == 0 {
		to = binary.AppendVarint(to, int64(e.order-before.order))
	}
	to = binary.AppendUvarint(to, uint64(e.client))
	to = binary.AppendUvarint(to, uint64(e.route))
	if flags&unitCost == 0 {
		to = binary.AppendUvarint(to, uint64(e.cost))
	}
	if flags&noClass == 0 {
		to = append(to, e.class)
	}
	return to
}

// unpack replaces e, the event before, by the first event in data, and returns the number of its bytes.
func unpack(data []byte, e *event) int {
	flags, at := data[0], 1
	if flags&sameTime == 0 {
		delta, n := binary.Uvarint(data[at:])
		e.at += int64(delta)
		at += n
	}
	if flags&nextOrder == 0 {
		delta, n := binary.Varint(data[at:])
		e.order += uint64(delta)
		at += n
	} else {
		e.order++
	}
	client, n := binary.Uvarint(data[at:])
	at += n
	route, n := binary.Uvarint(data[at:])
	at += n
	e.client, e.route, e.cost, e.class = uint32(client), uint32(route), 1, 0
	if flags&unitCost == 0 {
		cost, n := binary.Uvarint(data[at:])
		e.cost = int64(cost)
		at += n
	}
	if flags&noClass == 0 {
		e.class = data[at]
		at++
	}
	return at
}
