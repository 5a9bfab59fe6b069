package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

const (
	// MaxChoice is the most requests of one DecideAny.
	MaxChoice = 256
	// ChoiceGroup is how many requests a [Chooser] compares at once.
	ChoiceGroup = 8
)

// A Chooser decides on one of several subjects, such as the credentials of a pool.
type Chooser interface {
	Store
	// DecideAny decides one of the requests, in one atomic step, and returns which one and its answer. The others are not
	// charged.
	//
	// It looks at groups of ChoiceGroup requests, in order, and decides in the first group in which one fits now: the one
	// that has most room (see [Room]), and of several such the first. If none of all requests fits, it decides the
	// one whose retry time is shortest, and again the first: it books that one if the requests may be booked, and returns
	// its refusal otherwise. Requests that may be booked stand in line: behind a booking of its subject none of them fits
	// now.
	//
	// There are 1 to MaxChoice requests. All have the same algorithm, resolution and Within, and no key twice. Their
	// policies do not charge refused calls. When the store cannot decide them in one step the error is ErrApart, and
	// nothing was charged: see [ChooseApart]. A subject that the store rejects is left out, and the error is that of
	// [NoneOf] only if it rejects all.
	DecideAny(ctx context.Context, reqs []Request) (chosen int, answer Answer, err error)
}

// Room returns the share of a limit's units that would be left after the request: that of the limit with the smallest
// share. It is below zero if the request does not fit. The statuses are those of a look at the request's subject.
func Room(req *Request, statuses []Status) float64 {
	least := 1.0
	for i := range statuses {
		least = min(least, float64(statuses[i].Remaining-req.Cost)/float64(req.Policy.Limits[i].Units))
	}
	return least
}

// ChooseApart decides on one of several subjects with a store that cannot do it in one step. It takes the arguments of
// [Chooser].DecideAny. It looks at a group of subjects concurrently, and decides on the one with most room; if other
// calls have taken that room in between, it decides on the next best. If no subject has room, it decides on the one
// that a look expects to have room first. So a call is refused, or booked, only if every subject was seen without room; and
// another one may have room earlier. Of a subject with calendar limits alone, a look does not show bookings that lie ahead.
//
// At most one subject is charged. After an error of a decision it may have been. Subjects that the store rejects are left out.
func ChooseApart(ctx context.Context, store Store, reqs []Request) (chosen int, answer Answer, err error) {
	soonest, expected, bad := -1, int64(0), error(nil)
	for begin := 0; begin < len(reqs); begin += ChoiceGroup {
		group := reqs[begin:min(begin+ChoiceGroup, len(reqs))]
		looks, errs := make([]Answer, len(group)), make([]error, len(group))
		var all sync.WaitGroup
		for i, req := range group {
			req.Cost, req.Within = 0, 0
			all.Go(func() { looks[i], errs[i] = decideChecked(ctx, store, req) })
		}
		all.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, ErrRejected) {
				return 0, Answer{}, errors.Join(errs...)
			}
			bad = cmp.Or(bad, err)
		}
		for _, i := range byRoom(group, looks) {
			if errs[i] != nil {
				continue
			}
			req := group[i]
			req.Within = min(req.Within, 1) // now; one that may not be booked at all would go ahead of bookings
			if answer, err = decideChecked(ctx, store, req); err != nil || answer.Allowed() {
				return begin + i, answer, err
			}
			looks[i] = answer
		}
		for i := range group {
			if wait := expect(&group[i], &looks[i]); errs[i] == nil && (soonest < 0 || wait < expected) {
				soonest, expected = begin+i, wait
			}
		}
	}
	if soonest < 0 {
		return 0, Answer{}, NoneOf(len(reqs), bad)
	}
	answer, err = decideChecked(ctx, store, reqs[soonest])
	return soonest, answer, err
}

// NoneOf returns the error of a choice whose subjects are all rejected, the first of them with this error.
func NoneOf(subjects int, first error) error {
	return fmt.Errorf("none of the %d subjects can be decided, the first because of this: %w", subjects, first)
}

// byRoom returns the requests that fit, the one with most room first.
func byRoom(reqs []Request, looks []Answer) []int {
	var fit []int
	room := make([]float64, len(reqs))
	for i := range reqs {
		if room[i] = Room(&reqs[i], looks[i].Statuses()); room[i] >= 0 && expect(&reqs[i], &looks[i]) <= 0 {
			fit = append(fit, i)
		}
	}
	slices.SortStableFunc(fit, func(a, b int) int { return cmp.Compare(room[b], room[a]) })
	return fit
}

// expect returns the least time until a request fits, by a look at its subject or by a refusal. A booking is not earlier
// than the last charge, which a look shows by the time until that has left its window.
func expect(req *Request, look *Answer) (wait int64) {
	for i, s := range look.Statuses() {
		if s.Remaining < req.Cost {
			wait = max(wait, s.Retry, s.Release)
		}
		if l := &req.Policy.Limits[i]; req.Within > 0 && l.Period == 0 {
			wait = max(wait, s.Reset-l.Window)
		}
	}
	return wait
}

// decideChecked has the store decide a request, and checks its answer.
func decideChecked(ctx context.Context, store Store, req Request) (Answer, error) {
	answer, err := store.Decide(ctx, req)
	if err == nil {
		err = answer.Check(req.Policy)
	}
	return answer, err
}
