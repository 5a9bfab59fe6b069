package memstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"example.com/sash/internal/window"
)

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
