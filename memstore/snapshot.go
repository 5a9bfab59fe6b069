package memstore

import (
	"bufio"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"example.com/sash/internal/window"
)

// A snapshot is the line below, then records, each after its length as a uvarint, then a length of zero and the
// CRC-32C, big endian, of all bytes before it.
const snapshotHeader = "sash memstore snapshot 3\n"

// A record is: algorithm, resolution in nanoseconds, key, flags, until when the subject is held, when it was first
// charged, until when it refuses calls, the units used, IDs, the state, and its block if a flag says so. Strings follow
// their length; all numbers are varints.
const (
	flagLoose = 1 // a charge may still be settled
	flagBlock = 2 // refusals are counted

	snapshotStep = 128     // subjects encoded while a shard is locked
	mostRecord   = 1 << 30 // bytes; a full log has about two million
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot writes the contents of the store, for Restore of another one. Decisions go on meanwhile: Snapshot locks one of
// up to 64 shards for 128 keys at a time. It contains every charge from before the call, and perhaps charges made during
// it. Errors are the writer's.
func (s *Store) Snapshot(w io.Writer) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	if _, err := out.WriteString(snapshotHeader); err != nil {
		return err
	}
	for i := range s.shards {
		if err := s.shards[i].snapshot(out); err != nil {
			return err
		}
	}
	if err := out.WriteByte(0); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(binary.BigEndian.AppendUint32(nil, sum.Sum32()))
	return err
}

// snapshot writes a shard's subjects, a few at a time.
func (sh *shard) snapshot(out *bufio.Writer) error {
	sh.mu.Lock()
	subjects := slices.Concat(sh.free, sh.barred)
	sh.mu.Unlock()
	var records []byte
	for step := range slices.Chunk(subjects, snapshotStep) {
		records = sh.records(records[:0], step)
		if _, err := out.Write(records); err != nil {
			return err
		}
	}
	return nil
}

// records appends the records of the subjects that still exist.
func (sh *shard) records(b []byte, subjects []*subject) []byte {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock.now()
	var record []byte
	for _, sub := range subjects {
		if sub.index < 0 || sub.expires() <= now || sub.id.algorithm == leasing.Algorithm { // leases could be spent twice
			continue
		}
		record = sub.append(record[:0], now)
		b = binary.AppendUvarint(b, uint64(len(record)))
		b = append(b, record...)
	}
	return b
}

func (s *subject) append(b []byte, now int64) []byte {
	b = appendText(b, s.id.algorithm.String())
	b = binary.AppendVarint(b, int64(s.id.resolution))
	b = appendText(b, s.id.key)
	flags := byte(0)
	if s.loose {
		flags |= flagLoose
	}
	if s.block != nil {
		flags |= flagBlock
	}
	b = append(b, flags)
	for _, number := range [...]int64{s.until, s.born, s.refuses, s.used} {
		b = binary.AppendVarint(b, number)
	}
	b = s.ids.append(b, now)
	b = window.AppendState(b, s.state)
	if s.block != nil {
		b = s.block.Append(b)
	}
	return b
}

// append writes the floor, how many IDs are still remembered, and for each its name, until when, and its refusals.
func (i *ids) append(b []byte, now int64) []byte {
	if i == nil {
		i = new(ids)
	}
	b = binary.AppendVarint(b, i.floor)
	held := 0
	for _, m := range i.known {
		if m.until > now {
			held++
		}
	}
	b = binary.AppendUvarint(b, uint64(held))
	for _, e := range slices.SortedFunc(slices.Values(i.ends), ending.compare) {
		if m := i.known[e.name]; m.until > now {
			b = binary.AppendVarint(append(b, e.name[:]...), m.until)
			b = binary.AppendUvarint(b, m.refusals)
		}
	}
	return b
}

// cut reads what append has written from the front.
func (i *ids) cut(b []byte) (rest []byte, ok bool) {
	var n int
	if i.floor, n = binary.Varint(b); n <= 0 {
		return nil, false
	}
	b = b[n:]
	held, n := binary.Uvarint(b)
	if n <= 0 || held > uint64(len(b)) {
		return nil, false
	}
	b = b[n:]
	for range held {
		var name window.Name
		var m memo
		if len(b) < len(name) {
			return nil, false
		}
		b = b[copy(name[:], b):]
		if m.until, n = binary.Varint(b); n <= 0 {
			return nil, false
		}
		b = b[n:]
		if m.refusals, n = binary.Uvarint(b); n <= 0 {
			return nil, false
		}
		b = b[n:]
		if _, twice := i.known[name]; twice {
			return nil, false
		}
		i.put(name, m)
	}
	return b, true
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
