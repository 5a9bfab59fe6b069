package storetest

import (
	"errors"
	"fmt"

	"example.com/sash"
	"example.com/sash/driver"
)

// batchCases call the store with batches, while other cases use limiters.
var batchCases = []testCase{
	{"a batch of one operation", "an operation alone is carried out in any mode, and is the one that is chosen", nil, func(s *suite) {
		l := s.limiter(sash.Every(10, window))
		for i, mode := range []driver.Mode{driver.All, driver.Any, driver.Each} {
			b := driver.Batch{Mode: mode, Ops: []driver.Op{charge(l, fmt.Sprint("k", i), 3)}, Chosen: 5}
			if err := b.Do(s.Context(), s.Store); err != nil || b.Chosen != 0 || b.Ops[0].Answer.Remaining() != 7 || b.Charged(0) != 3 {
				s.broken("mode %d: %+v, %v", mode, b, err)
			}
		}
	}},
	{"operations each by themselves", "mode Each decides charges in their order, and a refusal leaves the others", nil, func(s *suite) {
		l := s.limiter(sash.Every(10, window))
		b := driver.Batch{Mode: driver.Each, Ops: []driver.Op{charge(l, "k", 6), charge(l, "k", 6), charge(l, "k", 4), charge(l, "l", 10)}}
		err := b.Do(s.Context(), s.Store)
		if errors.Is(err, driver.ErrApart) {
			s.Skip("the store does one at a time")
		}
		for i, charged := range []int64{6, 0, 4, 10} {
			if err != nil || b.Ops[i].Err != nil || b.Charged(i) != charged {
				s.broken("operation %d is charged %d units, want %d: %v, %v", i, b.Charged(i), charged, b.Ops[i].Err, err)
			}
		}
	}},
	{"what an operation asks for", "a store does not change what an operation asks for", nil, func(s *suite) {
		l := s.limiter(sash.Every(10, window))
		one, id, part, gone := charge(l, "k", 8), charge(l, "k", 1), charge(l, "k", 9), charge(l, "k", 1)
		id.ID, part.Partial, gone.At = "id", true, s.Now().UnixMicro()
		batches := []driver.Batch{
			{Ops: []driver.Op{one}}, {Ops: []driver.Op{id}}, {Ops: []driver.Op{part}}, {Ops: []driver.Op{one, charge(l, "l", 1)}},
			{Mode: driver.Any, Ops: []driver.Op{one, charge(l, "l", 1)}}, {Mode: driver.Each, Ops: []driver.Op{one, id}},
		}
		for kind := driver.Settle; kind <= driver.Cool; kind++ {
			gone.Kind = kind
			batches = append(batches, driver.Batch{Ops: []driver.Op{gone}})
		}
		for _, b := range batches {
			asked := b.Clone()
			_ = s.Store.Do(s.Context(), asked) // whether or not it can
			for i := range b.Ops {
				if asked.Mode != b.Mode || asked.Ops[i].Kind != b.Ops[i].Kind || asked.Ops[i].Settlement != b.Ops[i].Settlement {
					s.broken("of %+v became %+v", b.Ops[i], asked.Ops[i])
				}
			}
		}
	}},
	{"what a store cannot do", "what a store cannot do, or does not know, is an error", oneAlgorithm, func(s *suite) {
		l := s.limiter(sash.Every(10, window))
		for kind, power := range map[driver.Kind]driver.Powers{
			driver.Settle: driver.CanSettle, driver.Extend: driver.CanExtend, driver.GiveBack: driver.CanTake, driver.Forget: driver.CanForget,
			driver.Cool: driver.CanCool, 255: ^driver.Powers(0),
		} {
			op := charge(l, "k", 1)
			op.Kind = kind
			two := driver.Batch{Ops: []driver.Op{op, op}}
			if err := s.Store.Do(s.Context(), &two); kind != driver.Extend && err == nil {
				s.broken("two of kind %d are carried out together", kind)
			}
			if _, err := s.do(op); s.Store.Powers()&power == 0 && !errors.Is(err, driver.ErrUnsupported) {
				s.broken("kind %d: %v", kind, err)
			}
		}
		if left := s.peek(l, "k").Remaining; left != 10 {
			s.broken("%d of 10 units are left", left)
		}
	}},
}

func charge(l *sash.Limiter, key string, cost int64) driver.Op {
	return driver.Op{Settlement: driver.Settlement{Request: driver.Request{Key: key, Cost: cost, Policy: l.Policy()}}}
}
