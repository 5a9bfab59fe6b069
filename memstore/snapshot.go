package memstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"time"

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
		if sub.index < 0 || sub.expires() <= now {
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

// ErrSnapshot is the error of Restore for anything but a whole snapshot.
var ErrSnapshot = errors.New("memstore: this is not a whole snapshot of a memory store")

// Restore reads a Snapshot into a store that is empty and not yet in use. It leaves out charges that have left their
// window since, and beyond MaxKeys those that a full store evicts or does not take. After an error, which is
// [ErrSnapshot] or the reader's, the store is empty.
func (s *Store) Restore(r io.Reader) error {
	err := s.restore(r)
	if err != nil {
		for i := range s.shards {
			s.shards[i].clear()
		}
	}
	return err
}

func (s *Store) restore(r io.Reader) error {
	in := &summed{in: bufio.NewReader(r)}
	header := make([]byte, len(snapshotHeader))
	if err := in.full(header); err != nil {
		return err
	}
	if string(header) != snapshotHeader {
		return fmt.Errorf("%w: it begins with %q", ErrSnapshot, header)
	}
	var record []byte
	for {
		n, err := binary.ReadUvarint(in)
		switch {
		case err != nil:
			return in.broken(err)
		case n > mostRecord:
			return ErrSnapshot
		case n == 0:
			want := binary.BigEndian.AppendUint32(nil, in.sum)
			sum := make([]byte, len(want))
			if err := in.full(sum); err != nil {
				return err
			}
			if string(sum) != string(want) {
				return fmt.Errorf("%w: its bytes have changed", ErrSnapshot)
			}
			return nil
		}
		if record, err = in.record(record[:0], int(n)); err != nil {
			return err
		}
		if err := s.put(record); err != nil {
			return err
		}
	}
}

// put adds the subject of a record, unless it has expired.
func (s *Store) put(record []byte) error {
	sub := &subject{index: -1}
	name, record, ok1 := cutText(record)
	resolution, n := binary.Varint(record)
	if name == cooling.Algorithm.String() {
		sub.id.algorithm = cooling.Algorithm
	} else if err := sub.id.algorithm.UnmarshalText([]byte(name)); err != nil {
		return ErrSnapshot
	}
	if !ok1 || n <= 0 {
		return ErrSnapshot
	}
	sub.id.resolution = time.Duration(resolution)
	key, record, ok2 := cutText(record[n:])
	if !ok2 || len(record) == 0 {
		return ErrSnapshot
	}
	flags := record[0]
	sub.id.key, sub.loose = key, flags&flagLoose != 0
	record = record[1:]
	for _, number := range []*int64{&sub.until, &sub.born, &sub.refuses, &sub.used} {
		if *number, n = binary.Varint(record); n <= 0 {
			return ErrSnapshot
		}
		record = record[n:]
	}
	sub.ids = new(ids)
	record, ok3 := sub.ids.cut(record)
	if !ok3 {
		return ErrSnapshot
	}
	if len(sub.ids.ends) == 0 && sub.ids.floor == 0 {
		sub.ids = nil
	}
	state, rest, err := window.Decode(record)
	if err != nil {
		return fmt.Errorf("%w: key %q: %w", ErrSnapshot, key, err)
	}
	if flags&flagBlock != 0 {
		var ok bool
		if sub.block, rest, ok = window.CutBlock(rest); !ok {
			return ErrSnapshot
		}
	}
	_, cools := state.(*window.CoolDown)
	if len(rest) > 0 || cools != (sub.id.algorithm == cooling.Algorithm) {
		return ErrSnapshot
	}
	sub.state = state
	if log, ok := state.(*window.Log); ok {
		sub.log = *log
		sub.state = &sub.log
	}
	sub.hash = s.hash(key)
	s.shard(sub.hash).restore(sub)
	return nil
}

func (sh *shard) restore(sub *subject) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock.now()
	if sub.expires() <= now {
		return
	}
	if sh.room(now) {
		sub.barred = sub.refuses > now
		sh.link(sub)
		sh.enqueue(sub)
	}
}

// clear drops all subjects.
func (sh *shard) clear() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.store.keys.Add(-int64(sh.held()))
	clear(sh.subjects)
	sh.free, sh.barred = nil, nil
}

// cutText removes a string from the front.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	b = b[n:]
	return strings.Clone(string(b[:size])), b[size:], true
}

// A summed reader keeps the checksum of the bytes that were read.
type summed struct {
	in  *bufio.Reader
	sum uint32
}

// ReadByte implements io.ByteReader.
func (s *summed) ReadByte() (byte, error) {
	b, err := s.in.ReadByte()
	if err == nil {
		s.sum = crc32.Update(s.sum, castagnoli, []byte{b})
	}
	return b, err
}

func (s *summed) full(b []byte) error {
	if _, err := io.ReadFull(s.in, b); err != nil {
		return s.broken(err)
	}
	s.sum = crc32.Update(s.sum, castagnoli, b)
	return nil
}

// record appends n bytes. It allocates no more than the reader has.
func (s *summed) record(b []byte, n int) ([]byte, error) {
	for n > 0 {
		part := min(n, 64<<10)
		b = append(b, make([]byte, part)...)
		if err := s.full(b[len(b)-part:]); err != nil {
			return nil, err
		}
		n -= part
	}
	return b, nil
}

// broken returns ErrSnapshot for an unexpected end, and other errors of the reader as they are.
func (s *summed) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrSnapshot)
	}
	return err
}
