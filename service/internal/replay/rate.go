package replay

import "encoding/binary"

// A rate finds the most units within any window of several lengths. Times come in order.
type rate struct {
	windows []rateWindow
	charges queue
}

type rateWindow struct {
	length    int64 // microseconds
	sum, most int64
	left      func(charge) // called for each charge that leaves; may be nil
	oldest    charge       // the first within the window
	reader
}

type charge struct {
	at, units int64
	client    uint32
}

func newRate(lengths ...int64) *rate {
	r := &rate{}
	for _, l := range lengths {
		r.windows = append(r.windows, rateWindow{length: l})
	}
	return r
}

func (r *rate) add(c charge) {
	first := len(r.charges.blocks) == 0
	if grown := r.charges.push(c); grown {
		unread := r.windows[0].block
		for i := range r.windows {
			unread = min(unread, r.windows[i].block)
		}
		r.charges.drop(unread)
	}
	for i := range r.windows {
		w := &r.windows[i]
		if first {
			w.oldest = r.charges.read(&w.reader, charge{})
		}
		w.sum += c.units
		for w.oldest.at <= c.at-w.length { // never the new charge
			w.sum -= w.oldest.units
			if w.left != nil {
				w.left(w.oldest)
			}
			w.oldest = r.charges.read(&w.reader, w.oldest)
		}
		w.most = max(w.most, w.sum)
	}
}

// A queue holds charges, packed in blocks, until all readers have read them.
type queue struct {
	blocks  [][]byte
	dropped int // blocks before these
	last    charge
	free    [][]byte
}

const (
	queueBlock  = 1 << 12
	mostCharge  = 10 + 10 + 5 // bytes
	spareBlocks = 4
)

// push appends a charge, not before the last in time. It reports whether that began a block.
func (q *queue) push(c charge) (grown bool) {
	n := len(q.blocks)
	if n == 0 || len(q.blocks[n-1])+mostCharge > queueBlock {
		block := make([]byte, 0, queueBlock)
		if k := len(q.free); k > 0 {
			block, q.free = q.free[k-1][:0], q.free[:k-1]
		}
		q.blocks, grown = append(q.blocks, block), true
		n = len(q.blocks)
	}
	b := binary.AppendUvarint(q.blocks[n-1], uint64(c.at-q.last.at))
	b = binary.AppendUvarint(b, uint64(c.units))
	q.blocks[n-1] = binary.AppendUvarint(b, uint64(c.client))
	q.last = c
	return grown
}

// drop forgets the blocks before the given one.
func (q *queue) drop(before int) {
	n := before - q.dropped
	for i := range n {
		if len(q.free) < spareBlocks {
			q.free = append(q.free, q.blocks[i])
		}
		q.blocks[i] = nil
	}
	q.blocks = q.blocks[n:]
	q.dropped = before
}

// A reader is a place in a queue.
type reader struct{ block, at int }

// read returns the charge after the one before. There must be one.
func (q *queue) read(from *reader, before charge) charge {
	block := q.blocks[from.block-q.dropped]
	if from.at == len(block) {
		from.block, from.at = from.block+1, 0
		block = q.blocks[from.block-q.dropped]
	}
	data := block[from.at:]
	at, n := binary.Uvarint(data)
	units, m := binary.Uvarint(data[n:])
	client, k := binary.Uvarint(data[n+m:])
	from.at += n + m + k
	return charge{before.at + int64(at), int64(units), uint32(client)}
}
