package window

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/threshold"
)

// Kinds of states in their encoding.
const (
	kindLog = iota + 1
	kindCounter
	kindFixed
	kindGCRA
	kindCoolDown
	kindBooked // a log that has been booked
)

// ErrEncoding is the error of Decode for bytes that AppendState has not written.
var ErrEncoding = errors.New("window: not the encoding of a state")

// AppendState appends the encoding of a state, which Decode reads: integers are varints, and the instants and sums of a
// log are differences to the previous ones.
func AppendState(b []byte, s State) []byte {
	switch s := s.(type) {
	case *Log:
		if s.booked == nil {
			b = append(b, kindLog)
		} else {
			b = append(b, kindBooked)
			for _, v := range [...]int64{s.booked.written, s.booked.to, s.booked.from} {
				b = binary.AppendVarint(b, v)
			}
		}
		for _, v := range [...]int64{s.Resolution, s.keep, s.units, s.joined, s.moved, int64(s.head - s.lo)} {
			b = binary.AppendVarint(b, v)
		}
		at, sum := int64(0), s.gone
		for p := s.lo; p < s.head; p++ {
			e := s.slot(p)
			b = binary.AppendVarint(b, e.at-at)
			b = binary.AppendUvarint(b, e.sum-sum)
			at, sum = e.at, e.sum
		}
	case *Counter:
		b = binary.AppendVarint(append(b, kindCounter), int64(len(s.counters)))
		for _, c := range s.counters {
			for _, v := range [...]int64{c.window, c.start, c.current, c.prev} {
				b = binary.AppendVarint(b, v)
			}
		}
	case *Fixed:
		b = binary.AppendVarint(append(b, kindFixed), int64(len(s.counters)))
		for _, c := range s.counters {
			b = appendWindow(b, &c.limit)
			for _, v := range [...]int64{c.start, c.end, c.count} {
				b = binary.AppendVarint(b, v)
			}
		}
	case *GCRA:
		b = binary.AppendVarint(append(b, kindGCRA), int64(len(s.meters)))
		for _, m := range s.meters {
			b = binary.AppendVarint(b, m.window)
			b = binary.AppendVarint(b, m.at)
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(m.debt))
		}
	case *CoolDown:
		b = binary.AppendVarint(append(b, kindCoolDown), s.end)
		b = binary.AppendVarint(b, s.length)
		b = append(b, boolByte(s.guessed))
	}
	return b
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendWindow(b []byte, l *driver.Limit) []byte {
	b = append(binary.AppendVarint(b, l.Window), byte(l.Period))
	if l.Period == 0 {
		return b
	}
	zone := l.Zone.String()
	return append(binary.AppendUvarint(b, uint64(len(zone))), zone...)
}

// Decode reads one state and returns the remaining bytes. The error is ErrEncoding. A zone that this system does not know
// is an error too.
func Decode(b []byte) (State, []byte, error) {
	r := &reader{b: b}
	var s State
	switch kind := r.byte(); kind {
	case kindLog:
		s = r.log()
	case kindBooked:
		b := &booked{written: r.int(), to: r.int(), from: r.int()}
		log := r.log()
		if log != nil {
			log.booked = b
		}
		s = log
	case kindCounter:
		c := &Counter{}
		for range r.count(4) {
			c.counters = append(c.counters, counter{r.length(), r.int(), r.int(), r.int()})
		}
		s = c
	case kindFixed:
		f := &Fixed{}
		for range r.count(5) {
			f.counters = append(f.counters, fixedCounter{r.window(), r.int(), r.int(), r.int()})
		}
		s = f
	case kindGCRA:
		g := &GCRA{}
		for range r.count(10) {
			g.meters = append(g.meters, meter{r.length(), r.int(), r.float()})
		}
		s = g
	case kindCoolDown:
		s = &CoolDown{end: r.int(), length: r.length(), guessed: r.byte() != 0}
	default:
		r.fail(ErrEncoding)
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return s, r.b, nil
}

func (r *reader) log() *Log {
	l := &Log{Resolution: r.length(), keep: r.length(), units: r.int(), joined: r.int(), moved: r.int()}
	n := r.count(2)
	if n > threshold.Log.Entries {
		r.fail(ErrEncoding)
		return nil
	}
	if n > 0 {
		l.ring = make([]entry, max(4, 1<<bits.Len(uint(n-1))))
	}
	at, sum := int64(0), uint64(0)
	for range n {
		step := r.int()
		units := r.uint()
		if l.head > 0 && step <= 0 {
			r.fail(ErrEncoding)
		}
		at, sum = at+step, sum+units
		*l.slot(l.head) = entry{at, sum}
		l.head++
	}
	return l
}

// A reader reads values from the front of bytes, until the first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.b, r.err = nil, err
	}
}

// skip reads n bytes.
func (r *reader) skip(n int) []byte {
	if n <= 0 || n > len(r.b) {
		r.fail(ErrEncoding)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.skip(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	r.skip(n)
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.skip(n)
	return v
}

// length reads a duration of at least a microsecond.
func (r *reader) length() int64 {
	v := r.int()
	if v < 1 {
		r.fail(ErrEncoding)
	}
	return v
}

// count reads the number of items that follow, of at least so many bytes each, which bounds the allocation for them.
func (r *reader) count(size int) int {
	n := r.int()
	if n < 0 || n > int64(len(r.b)/size) {
		r.fail(ErrEncoding)
		return 0
	}
	return int(n)
}

func (r *reader) float() float64 {
	b := r.skip(8)
	if b == nil {
		return 0
	}
	f := math.Float64frombits(binary.BigEndian.Uint64(b))
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail(ErrEncoding)
	}
	return f
}

func (r *reader) window() driver.Limit {
	l := driver.Limit{Window: r.int(), Period: driver.Period(r.byte())}
	if l.Period == 0 {
		if l.Window < 1 {
			r.fail(ErrEncoding)
		}
		return l
	}
	n := r.uint()
	if l.Period > driver.Month || n > uint64(len(r.b)) {
		r.fail(ErrEncoding)
		return l
	}
	zone := r.skip(int(n))
	if r.err != nil {
		return l
	}
	var err error
	if l.Zone, err = time.LoadLocation(string(zone)); err != nil {
		r.fail(err)
	}
	return l
}
