package driver

import (
	"context"
	"fmt"
	"slices"
)

// Bounds of a batch.
const (
	// MaxSubjects is the most operations of mode All.
	MaxSubjects = 4
	// MaxChoice is the most operations of mode Any, and ChoiceGroup how many of them a store compares at once.
	MaxChoice   = 256
	ChoiceGroup = 8
)

// A Batch is operations that a store carries out together. A single operation may have any mode. Answers and errors are unset at first.
type Batch struct {
	Mode Mode
	// Ops are the operations. In modes All and Any they are of one kind, and their keys differ.
	Ops []Op
	// Chosen is the index of the operation that was carried out, which the store sets in mode [Any].
	Chosen int
}

// A Mode says how the operations of a batch belong together.
type Mode uint8

// The modes.
const (
	// All carries out 1 to MaxSubjects charges or extensions, all or none, in one atomic step. Charges have no ID, and the same algorithm,
	// resolution, CountRefused and Block. If the store cannot carry them out in one step, the error is [ErrApart] and nothing was charged.
	// A limiter then makes one charge after the other, and gives back those made if one is refused.
	All Mode = iota
	// Any carries out one of 1 to MaxChoice charges, in one atomic step, and sets Chosen and the answer of that one.
	//
	// The store looks at groups of ChoiceGroup charges, in order, and decides in the first group in which a charge fits now. A charge's
	// room is the smallest share of a limit that it leaves; the store makes the first charge with the most room. If no charge fits, the
	// store decides the first charge with the shortest retry time, and books it if the charges may be booked. A charge that may be booked
	// does not fit now if its subject has a booking ahead.
	//
	// All charges have the same algorithm, resolution and Within. Their policies do not charge refused calls. If the store cannot decide
	// them in one step, the error is [ErrApart] and nothing was charged; a limiter then looks at each. The store leaves out a subject that
	// it rejects. The error is ErrRejected only if it rejects all.
	Any
	// Each carries out the operations one after the other, each by itself, with its own Err. After an error of Do, any number of them
	// may have been carried out. If they take several round trips that the caller could make at the same time, the error is ErrApart and
	// the store carries out none. An Err of ErrApart says the same of one operation. See [OneByOne].
	Each
)

// A Kind says what an operation does.
type Kind uint8

// The kinds of operations.
const (
	// Charge admits a call if every limit has room, and then charges its cost to all of them. A refusal changes nothing, unless
	// the policy counts refused calls. [Request] has its other options.
	//
	// A charge with a [Settlement].ID may be repeated, also after an error. The ID has 1 to MaxIDLength bytes, and names the call
	// among the calls of its key, algorithm and resolution. The store charges and remembers the decision in one atomic step. Until
	// RepeatTime has passed or the subject is forgotten, a repetition charges nothing, whatever its cost and limits. It gets the Refusals
	// and At of the first Answer, with the statuses of its own limits as of now. A store does not remember a decision that charged nothing,
	// and may bound how many IDs a key remembers.
	Charge Kind = iota
	// Settle changes the charge of an admitted call to [Settlement].Units, at the instant of the charge. Fewer units make room at once.
	// More are charged whether or not there is room. Settle does nothing if the charge has left the window or was forgotten, or if the store
	// has already applied the settlement, so it may be repeated after an error. If the clock went back, more units are charged at a later
	// instant; units to give back may come from another charge of the key, or stay charged. A store may bound how many IDs a key
	// remembers: a settlement that it may have forgotten gives no units back. Settle has no answer.
	Settle
	// Extend moves the charge of an admitted call to now in one step, so that no other call takes the room. It is for a call that needs
	// its slot for longer, and for a booking that could start earlier because units came back. [Answer].At is the new instant, which
	// identifies the charge from then on. At is zero, and nothing has changed, if the charge has left its longest window, was given back
	// or forgotten, or seems to have left after the clock went back. Limits do not matter, because the call was admitted. Units is not
	// set. An ID names the settlement that gives the old charge back: if it was applied, the charge is gone; otherwise Extend applies it.
	//
	// A booking, whose settlement has a Delay, is moved only if every limit has room now without it and the move delays no other
	// booking. Otherwise At is zero, too. Once moved, its settlement has no Delay. Bookings of several subjects that one batch
	// made are all moved, or none. The error is [ErrUnsupported] under an algorithm other than SlidingLog and SlidingBuckets.
	// After any other error but ErrApart, the charge may have been moved.
	Extend
	// GiveBack gives back Cost units, 1 to MaxUnits, of the oldest charges that count in the policy's limits now. It takes none from
	// bookings ahead. The answer is that of a look afterwards. Its Charged is how many units were given back: fewer than Cost if no more
	// count, or if the store bounds how many charges it changes in a call. It must not be repeated after an error: it may have happened.
	GiveBack
	// Forget removes every charge of the key under the policy's algorithm, and ends its block. It has no answer.
	Forget
	// Cool begins a cool-down of the key: see [CoolDown]. It has no answer.
	Cool
)

// An Op is an operation on one subject.
type Op struct {
	Kind Kind
	// Settlement is the call, and for [Settle] and [Extend] the call's charge.
	Settlement
	// CoolDown is the cool-down that [Cool] begins. The store sets it to the cool-down that the key then has.
	CoolDown CoolDown

	// Answer is set by the store, unless there is an error. Its Source and Cause say so if anything but the store answered.
	Answer Answer
	// Err is the error of this operation in mode [Each], where Do returned nil.
	Err error
}

// MayCharge returns the most units that the operation charges.
func (op *Op) MayCharge() int64 {
	switch op.Kind {
	case Charge, Extend: // an extension charges anew
		return op.Cost
	case Settle:
		return max(0, op.Units-op.Cost)
	}
	return 0
}

func (op *Op) check() error {
	if op.Kind != Charge && op.Kind != GiveBack {
		return nil
	}
	return op.Answer.Check(op.Policy)
}

// Do has a store carry out the batch, and checks the answers: a wrong answer becomes an error that says what the store did wrong.
func (b *Batch) Do(ctx context.Context, store Store) error {
	err := store.Do(ctx, b)
	if err != nil {
		return err
	}
	if b.Mode == Any {
		if b.Chosen < 0 || b.Chosen >= len(b.Ops) {
			return fmt.Errorf("driver: the store chose operation %d of %d", b.Chosen, len(b.Ops))
		}
		return b.Ops[b.Chosen].check()
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Err == nil {
			op.Err = op.check()
		}
		if op.Err != nil && (b.Mode != Each || len(b.Ops) == 1) {
			return op.Err
		}
	}
	return nil
}

// Charged returns how many units operation i charged in a batch carried out without an error. It is below zero for units given back.
func (b *Batch) Charged(i int) int64 {
	op := &b.Ops[i]
	admitted := op.Answer.Allowed()
	for j := 0; b.Mode == All && j < len(b.Ops); j++ { // range would copy operations, which are large
		admitted = admitted && b.Ops[j].Answer.Allowed()
	}
	switch {
	case op.Err != nil, b.Mode == Any && i != b.Chosen:
		return 0
	case op.Kind == GiveBack:
		return -op.Answer.Charged
	case op.Kind == Settle:
		return op.Units - op.Cost
	case op.Kind == Extend && op.Answer.At == 0, op.Kind == Charge && !admitted && !op.Policy.CountRefused:
		return 0
	case op.Kind == Charge && op.Partial:
		return max(1, op.Answer.Charged) // a charged refusal costs one unit
	}
	return op.MayCharge()
}

// Clone returns a copy of the batch.
func (b *Batch) Clone() *Batch { return &Batch{b.Mode, slices.Clone(b.Ops), b.Chosen} }

// Take sets the answers of the batch to those of a copy that a store has carried out.
func (b *Batch) Take(from *Batch) {
	b.Chosen = from.Chosen
	for i := range b.Ops {
		b.Ops[i].CoolDown, b.Ops[i].Answer, b.Ops[i].Err = from.Ops[i].CoolDown, from.Ops[i].Answer, from.Ops[i].Err
	}
}

// OneByOne carries out the operations of a batch by themselves, in their order, for a store that has no better way.
func OneByOne(ctx context.Context, b *Batch, do func(context.Context, *Op) error) error {
	if len(b.Ops) == 1 {
		b.Chosen = 0
		return do(ctx, &b.Ops[0])
	}
	if b.Mode != Each {
		return ErrApart
	}
	for i := range b.Ops {
		b.Ops[i].Err = do(ctx, &b.Ops[i])
	}
	return nil
}

// Decide has a store carry out one charge, and checks the answer.
func Decide(ctx context.Context, store Store, req Request) (Answer, error) {
	b := Batch{Ops: []Op{{Settlement: Settlement{Request: req}}}}
	err := b.Do(ctx, store)
	return b.Ops[0].Answer, err
}

// A Request is one call on one subject. Limiters make requests and check them; stores trust them.
type Request struct {
	// Key is the subject: 1 to MaxKeyLength bytes.
	Key string
	// Cost is the units requested. Zero only looks.
	Cost int64
	// Policy holds the limits of the subject. The cost is not above any of them.
	Policy *Policy
	// Within is how far ahead a charge may be booked, in microseconds: 0 to MaxAhead. Zero means only now. A store that does not book,
	// or not under the policy, ignores Within: see [Policy.Bookable].
	//
	// A request that may be booked is charged at the earliest instant, from now to Within ahead, at which every limit has room and no
	// earlier request has a later charge. [Answer].At is that instant, and [Answer].Delay the time until it. So bookings start in the
	// order in which the store decided them. If the instant is farther ahead, the request is refused, and its retry time ends there.
	//
	// Units that come back while bookings lie ahead leave gaps. While those bookings lie ahead, a request under sliding limits is charged
	// at the earliest instant at which it delays no booking. The store looks for it among the next 256 instants at which charges are made
	// or leave, and only if Within is above a microsecond, which a choice uses. (The retry time of a refusal is behind all bookings.)
	//
	// A request that may not be booked is admitted only if it fits now, and if every window that ends at a booking then still holds no more
	// than the request's own limits. Otherwise its retry time is an upper bound: the time until it would fit behind all bookings. Remaining
	// is the highest cost that would be admitted. If more than 1,000 instants within a window of now have charges, a store may
	// refuse without looking at every booking.
	//
	// For every instant, also ahead of now, the window that ends there holds no more than a limit's units. When a settlement gives a
	// booking back, the bookings behind it keep their instants. One subject has bookings at up to 10,000 instants ahead of now. Beyond
	// that, a request that does not fit now is refused, with the time until it would fit.
	//
	// If a request that may be booked is refused, the limits without room until Within has passed refuse it, each with the time until
	// it has room. Remaining is as of now. No refusal is [Answer.Firm] while bookings lie ahead. A batch of mode All, whose charges have
	// one Within, books all charges at one instant. A repetition with an ID gets the At of the first Answer, and the rest of its Delay.
	//
	// When the clock goes back to before the last charge, bookings move back by that time, because callers wait in real time.
	// Settling such a booking may do nothing: its units then stay charged until they leave.
	Within int64
	// Partial requests as many units as fit now: Cost or fewer, and at least one. [Answer].Charged says how many were
	// charged. A refusal is that of a call of one unit: so is its retry time, and the charge if the policy charges refused
	// calls. Such a request is never booked, and stands alone.
	Partial bool
	// Forced charges Cost, 1 to MaxUnits, whether or not there is room, even if it is above every limit. The answer is that
	// of a peek afterwards. Such a request stands alone. Its policy counts refused calls, so that decorators treat it as a call
	// that is charged in any case.
	Forced bool
	// MaySettle says that the charge may be settled later. While it counts, refusals of other calls are not [Answer.Firm].
	MaySettle bool
}

// A Settlement corrects the charge of an admitted request to the units that it used.
type Settlement struct {
	// Request is the request. Its Cost is the units that were charged.
	Request
	// At is when the charge was made: [Answer.At] of the answer that admitted the request.
	At int64
	// Delay is the [Answer.Delay] of that answer. It tells a booking made before a reset from one made after it.
	Delay int64
	// Source is where that answer came from.
	Source Source
	// Units is what the request used: 0 to MaxUnits, less or more than its Cost.
	Units int64
	// ID names the settlement, or the call of a charge. A store applies it once, however often it is repeated. Empty means never repeated.
	ID string
}

// Expires returns the instant from which the charge no longer counts and settling does nothing. Until then stores remember the ID.
func (s *Settlement) Expires() int64 {
	lives := s.Policy.Longest()
	if s.Policy.Algorithm == SlidingCounter {
		lives *= 2
	}
	return s.At + lives
}

// A CoolDown is a time in which all processes that share a store leave a key alone, such as an API. Lengths are in microseconds.
//
// A cool-down lasts Length from now on. The store begins it, in one atomic step, unless the key has one that ends as late or later. The
// operation gets the cool-down that the key then has, or the zero CoolDown. A Length of zero only looks. The policy of the operation has
// no limits, and charges of the key stay as they are. After an error the cool-down may have begun, and the operation may be repeated. If
// the store's clock goes back to before a cool-down began, it counts as begun now. A store keeps a cool-down after its end for as long as
// it lasted, and for 10 seconds at least, so that a caller learns that the last one was too short.
type CoolDown struct {
	// Length is how long the cool-down lasts: at most a day and an hour. Zero is no cool-down.
	Length int64
	// Left is the time until its end on the store's clock: at most Length, and negative after the end. [Cool] does not read it.
	Left int64
	// Guessed says that the Length is a guess. The store keeps it for its callers.
	Guessed bool
}
