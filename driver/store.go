// Package driver is what a store implements, and what it gets and returns. Programs that only limit calls
// need the packages sash and a store; authors of stores and of decorators need this one.
//
// A store has one method, Decide: one [Request] in, one atomic decision, one [Answer] out. What else a
// backend can do is an optional interface, a power: [MultiStore], [Chooser], [Deduplicator], [Settler], [Extender],
// [Resetter], [Taker], [Booker], [Blocker], [Batcher] and [Cooler].
// A [Decorator] is a store over a store. Embedding a [Passthrough] gives it every power of the store behind
// it, so that it defines only the methods that it changes:
//
//	type logged struct{ driver.Passthrough }
//
//	func (l *logged) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
//		answer, err := l.Next.Decide(ctx, req)
//		slog.DebugContext(ctx, "decided", "key", req.Key, "allowed", answer.Allowed(), "error", err)
//		return answer, err
//	}
//
// Times are whole microseconds as int64, since the Unix epoch or as a length: the precision of the Redis
// clock. The package storetest has the conformance suite that every store and decorator passes.
package driver

import (
	"context"
	"errors"
	"time"
)

// A Store decides. One call is one atomic decision, and one round trip where there is a network.
// Implementations are safe for concurrent use. They return the context's error when it ends first; any
// other error means that the store failed. They never repeat a decision that may have been made.
type Store interface {
	// Decide admits the request if every limit has room, and then charges its cost to all of them.
	// A refusal changes nothing, unless the policy counts refused calls.
	Decide(ctx context.Context, req Request) (Answer, error)
}

// A MultiStore decides over several subjects at once, all or nothing.
type MultiStore interface {
	Store
	// DecideAll charges every request if all have room, and none otherwise. It returns one answer a
	// request. All requests have the same algorithm, resolution, CountRefused and Block, and no key twice.
	// When the store cannot decide them in one step the error is ErrApart, and nothing was charged.
	DecideAll(ctx context.Context, reqs []Request) ([]Answer, error)
}

// A Deduplicator decides once for each ID.
type Deduplicator interface {
	// DecideOnce is Decide for a request that may be repeated. The ID has 1 to MaxIDLength bytes, and
	// names the request among those of its key, algorithm and resolution. A decision that charged is
	// remembered for RepeatTime, or until a reset: within it a repetition charges nothing, whatever its cost and
	// its limits. It gets the same decision, which is the Refusals and At of the first Answer, and the statuses
	// of its own limits as of now. Any other decision is not remembered. Charging and remembering are one atomic
	// step. It may be repeated after an error. A store may bound how many IDs a key remembers.
	DecideOnce(ctx context.Context, id string, req Request) (Answer, error)
}

// A Booker books: it honours [Request].Within in Decide, DecideAll and DecideOnce, unless the cost is zero.
//
// A request that may be booked is admitted at the earliest instant, from now to Within ahead, at which every limit has
// room and no charge that was made before is later. Its charge is made at that instant, which is [Answer].At, and
// [Answer].Delay is how long it is from now. So bookings start in the order in which the store decided them. If that
// instant is farther away the request is refused, and its retry time is the time until that instant.
//
// Once units came back while bookings lay ahead of now, and as long as some do, one request under sliding limits is admitted at
// the earliest instant at which every limit has room and which delays no booking, as described for a request that may not be
// booked, if the store finds it within 256 instants at which charges are made or leave, and Within is more than a microsecond, with
// which a choice asks. (Within is compared with that instant, and the retry time of a refusal is that behind all bookings.)
//
// A request that may not be booked delays no booking: it is admitted only if it fits now, and if every window that ends
// at a booking then still holds no more than the request's own limits. Otherwise it is refused, and its retry time is
// an upper bound: the time until it would fit behind all bookings. A store may refuse it without looking at every
// booking, where more than 1,000 instants within a window of now have charges. What remains is the highest cost that it
// would admit.
//
// For every instant, also ahead of now, the window that ends there holds no more than a limit's units. A booking is given
// back by a settlement; those behind it keep their instants. At
// most 10,000 instants ahead of now have bookings of one subject: then a request that does not fit now is refused, with
// the time until it would fit.
//
// If a request that may be booked is refused, those limits refuse it that have no room until Within has passed, each with
// the time until it has. What remains is then as of now. No refusal is [Answer.Firm] while bookings lie ahead. DecideAll
// books all its requests at one instant, behind the bookings of all their subjects; their Within is the same. A repetition
// with an ID gets the At of the first Answer, and what is left of its Delay.
//
// When the clock goes back to before the last charge, bookings move back by that time, because callers wait in real time.
// Settling one then may do nothing: its units stay charged until they leave.
type Booker interface {
	Store
	// Books reports whether the store books under the policy, whatever its limits: at most where [Policy.Bookable] says so.
	// Under any other it ignores Within.
	Books(p *Policy) bool
}

// CanBook reports whether a store, with every store behind it, books under the policy.
func CanBook(store Store, p *Policy) bool {
	b, ok := As[Booker](store)
	return ok && b.Books(p)
}

// A Blocker honours [Policy].Block. A limiter with a Block needs one: another store would never begin a block.
type Blocker interface {
	Store
	// Blocks does nothing; it marks the type.
	Blocks()
}

// A Batcher decides several requests of one subject in one round trip.
type Batcher interface {
	Store
	// DecideEach decides requests with the same key and equal policies one after the other, each as Decide would, and
	// returns one answer each. After an error any number of them may have been charged.
	DecideEach(ctx context.Context, reqs []Request) ([]Answer, error)
}

// A Taker decides requests that are [Request].Partial or Forced, and gives units back.
type Taker interface {
	Store
	// Reward gives back Cost units, 1 to MaxUnits, of the subject without settling a certain charge: those of the oldest
	// charges that count in the policy's limits now, and none that is booked ahead. The answer is that of a peek
	// afterwards, and its Charged is how many units were given back: fewer than Cost if no more count, or if a store
	// bounds how many charges it changes in a call. An error leaves open whether it happened: it must not be repeated.
	Reward(ctx context.Context, req Request) (Answer, error)
}

// A Settler corrects the charge of an admitted request.
type Settler interface {
	// Settle makes a request's charge worth the settlement's units, at the instant at which it was
	// made: less at once makes room; more is charged whether or not there is room. It does nothing when
	// the charge has left the window or was removed by a reset, or when the store has applied the settlement
	// already, and may be repeated after an error. After a clock that went back, what is more is charged at a
	// later instant than the request was, and less may be given back by another call of the same key, or not at
	// all. A store may bound how many IDs a key remembers; what it may have forgotten gives no units back.
	//
	// Several settlements, of different subjects, are each applied by itself, in one step if the store can, and the error is
	// that of one which was not. It is ErrApart, and none was applied, if they take several steps.
	Settle(ctx context.Context, sets ...Settlement) error
}

// An Extender makes the charge of an admitted request count from now on: for a holder of a slot that needs it for longer, and
// for a caller whose booking could start earlier because units came back.
type Extender interface {
	// Extend moves the charge of a request to now in one step, so that no other call can take the room, and returns the
	// instant, which identifies the charge from then on. It is zero, and nothing has changed, if the charge has left its
	// longest window, was given back, or was removed by a reset. After a clock that went back a charge can be taken for
	// one that has left. The limits of the request do not matter: it was admitted.
	//
	// A booking, whose settlement has a Delay, is moved only if every limit of the request has room now without it, and no
	// other booking is delayed. Otherwise the instant is zero, too. From then on its settlement has no Delay. Bookings of
	// several subjects that one DecideAll made are all moved, or none. The error is [ErrApart] if that takes several steps.
	//
	// A settlement is that of the charge, without Units and ID. The error is [ErrUnsupported] under an algorithm other than
	// SlidingLog and SlidingBuckets. After any other error the charge may have been moved.
	Extend(ctx context.Context, sets ...Settlement) (at int64, err error)
}

// A Resetter forgets a subject.
type Resetter interface {
	// Reset removes every charge of the key under the policy's algorithm, and ends its block.
	Reset(ctx context.Context, key string, policy *Policy) error
}

// A Cooler keeps cool-downs: times in which all processes that share the store leave a key alone, such as an API
// that has refused a call.
type Cooler interface {
	// CoolDown begins a cool-down of the key that lasts c.Length from now on, unless there is one that ends
	// as late; comparing and beginning are one atomic step. It returns the cool-down that the key has then:
	// the zero CoolDown when there is none. A Length of zero begins nothing and only looks. The key has 1 to
	// MaxKeyLength bytes; its charges do not matter and stay as they are. After an error the cool-down may
	// have begun, and the call may be repeated.
	//
	// When the store's clock went back to before a cool-down began, it counts as begun now.
	CoolDown(ctx context.Context, key string, c CoolDown) (CoolDown, error)
}

// A CoolDown is a time in which a key is left alone. Lengths are in microseconds.
type CoolDown struct {
	// Length is how long it lasts: at most a day and an hour. Zero is no cool-down.
	Length int64
	// Left is the time until its end on the store's clock: at most Length, and negative after the end. It is
	// not used when a cool-down begins.
	Left int64
	// Guessed says that the Length is a guess. The store keeps it for its callers.
	Guessed bool
}

// Keep returns how long after its end a store keeps a cool-down: as long as it lasted, and 10 seconds at
// least. So a caller knows that the last one was too short.
func (c CoolDown) Keep() int64 { return max(c.Length, 10*time.Second.Microseconds()) }

// A Witness is a store that knows for how long it waits for its servers. What a call waits for besides is in this process.
type Witness interface {
	// Waits returns for how long the oldest call has been on its way to the servers or back; 0 if there is none. It must
	// not block.
	Waits() time.Duration
	// Silent names the servers that have owed an answer for at least d, or to which there is no connection, in words
	// for an error. It is empty if there is none. It must not block.
	Silent(d time.Duration) string
}

// Errors that stores return, for errors.Is.
var (
	// ErrUnsupported means that the store does not have the power that was asked for.
	ErrUnsupported = errors.New("sash: not supported by this store")
	// ErrApart means that a store cannot decide these subjects in one step, because they live in
	// different places, such as slots of a Redis Cluster. A limiter then decides them one by one.
	ErrApart = errors.New("sash: the subjects live in different places of the store")
	// ErrRejected means that the store works and cannot decide this call, as where what it holds under the key was not
	// written by it. A decorator passes the error on, and it says nothing about other calls. Repeating the call does not
	// help, unless the error says so.
	ErrRejected = errors.New("sash: the store works and rejects this call")
)

// Bounds that limiters check before they ask a store.
const (
	// MaxKeyLength is the most bytes of a key.
	MaxKeyLength = 512
	// MaxIDLength is the most bytes of the ID of a call.
	MaxIDLength = 128
	// MaxSubjects is the most requests of one DecideAll.
	MaxSubjects = 4
)

// MaxAhead is the longest time ahead for which a request can be booked: a day, in microseconds.
const MaxAhead = int64(24 * time.Hour / time.Microsecond)

// RepeatTime is how long a store remembers the ID of a call that it charged, from the charge on.
const RepeatTime = 5 * time.Minute

// A Request is one call on one subject. Limiters make requests and check them; stores trust them.
type Request struct {
	// Key is the subject: 1 to MaxKeyLength bytes.
	Key string
	// Cost is the units asked for. Zero only looks.
	Cost int64
	// Policy holds the limits of the subject. The cost is not above any of them.
	Policy *Policy
	// Within is how far ahead the request may be booked, in microseconds: 0 to MaxAhead. Zero only asks for now. Only a
	// [Booker] gets requests that may be booked.
	Within int64
	// Partial asks for as many units as fit now: Cost or fewer, and at least one. [Answer].Charged says how many were
	// charged. A refusal, its retry time, and what a policy that counts refused calls charges for it are those of a call
	// of one unit. Only Decide of a [Taker] gets such a request, and it is never booked.
	Partial bool
	// Forced charges Cost whether or not there is room, also if it is above every limit: 1 to MaxUnits. The answer is that
	// of a peek afterwards. Only Decide of a [Taker] gets such a request. Its policy counts refused calls, so that
	// decorators take it for a call that is charged in any case.
	Forced bool
	// MaySettle says that the charge may be settled later, so that refusals of other calls are not
	// [Answer.Firm] any more.
	MaySettle bool
}

// A Settlement says what an admitted request was worth in the end.
type Settlement struct {
	// Request is the request. Its Cost is what was charged.
	Request Request
	// At is when the charge was made: [Answer.At] of the answer that admitted the request.
	At int64
	// Delay is the [Answer.Delay] of that answer. The store had decided so long before At: that tells a booking of
	// before a reset from one of after it.
	Delay int64
	// Source is where that answer came from.
	Source Source
	// Units is what the request was worth: 0 to MaxUnits, less or more than its Cost.
	Units int64
	// ID names the settlement among all: a store applies it once, however often it is repeated. Empty
	// when the caller never repeats it.
	ID string
}

// Expires returns the instant from which the charge no longer counts and settling does nothing. Stores
// remember the ID until then, unless there are too many.
func (s *Settlement) Expires() int64 {
	lives := s.Request.Policy.Longest()
	if s.Request.Policy.Algorithm == SlidingCounter {
		lives *= 2
	}
	return s.At + lives
}
