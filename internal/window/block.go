package window

import (
	"encoding/binary"
	"slices"

	"example.com/sash/driver"
)

// A Block counts the refusals of a subject, and keeps it out for a time when there are too many. The zero value and nil
// have counted none.
type Block struct {
	ends, length int64
	refusals     []int64 // the instants of those that are counted
}

// Left returns the time until the block ends, or 0. After a clock that went back it lasts no longer than its length.
func (b *Block) Left(now int64) int64 {
	if b == nil {
		return 0
	}
	b.ends = min(b.ends, now+b.length)
	return max(0, b.ends-now)
}

// Refuse counts a refusal, and returns the time that a block lasts which begins with it, or 0.
func (b *Block) Refuse(now int64, by *driver.Block) (begins int64) {
	for i := range b.refusals {
		b.refusals[i] = min(b.refusals[i], now)
	}
	b.refusals = slices.DeleteFunc(b.refusals, func(at int64) bool { return at <= now-by.Window })
	b.ends, b.length = 0, by.Length
	if b.refusals = append(b.refusals, now); int64(len(b.refusals)) < by.Refusals {
		return 0
	}
	b.refusals, b.ends = nil, now+by.Length
	return by.Length
}

// Append appends the encoding of the block, which CutBlock reads.
func (b *Block) Append(to []byte) []byte {
	to = binary.AppendVarint(binary.AppendVarint(to, b.ends), b.length)
	to = binary.AppendUvarint(to, uint64(len(b.refusals)))
	for _, at := range b.refusals {
		to = binary.AppendVarint(to, at)
	}
	return to
}

// CutBlock reads what Append has written from the front.
func CutBlock(from []byte) (b *Block, rest []byte, ok bool) {
	next := func() (v int64) {
		v, n := binary.Varint(from)
		if ok = ok && n > 0; ok {
			from = from[n:]
		}
		return v
	}
	ok = true
	b = &Block{ends: next(), length: next()}
	count, n := binary.Uvarint(from)
	if !ok || n <= 0 || count >= driver.MaxRefusals || b.length < 0 {
		return nil, nil, false
	}
	from = from[n:]
	for range count {
		b.refusals = append(b.refusals, next())
	}
	return b, from, ok
}
