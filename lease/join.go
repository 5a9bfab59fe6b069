package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// The keys of the agreement at home, and of the record in the store of a region, which may be one store.
const (
	regionsKey = "regions"
	recordKey  = "region"
)

// mostSwaps is how often a text is written that others write at the same time.
const mostSwaps = 8

// A kept is the record of a region, and the clock and process of its store.
type kept struct {
	record
	text    string
	at      int64
	process string
}

// holds reports whether the region has an own share under the terms.
func (k *kept) holds(t terms) bool {
	return k.record.process == k.process && k.terms == t && k.until > k.at
}

// look reads the record of the region.
func (o *own) look(ctx context.Context) (k kept, err error) {
	got, err := o.near.Swap(ctx, recordKey, driver.Swap{})
	if err != nil {
		return k, err
	}
	k = kept{text: got.Text, at: got.At, process: got.Process}
	k.record, err = readRecord(got.Text)
	return k, err
}

// known returns the terms that are in force at home. As long as nobody knows them, nothing is asked of the home.
func (o *own) known(ctx context.Context) (terms, error) {
	now := time.Now()
	o.mu.Lock()
	in, known, due := o.inForce, now.Before(o.until), !now.Before(o.next)
	err := o.cause
	if known && due {
		o.next = now.Add(o.refresh) // others do not ask meanwhile
	}
	o.mu.Unlock()
	switch {
	case known && due:
		go func() { _ = o.join(context.WithoutCancel(ctx), now) }()
		return in, nil
	case known:
		return in, nil
	case !due:
		return terms{}, unconnected(err)
	}
	if is, err := o.look(ctx); err == nil && is.holds(o.terms) {
		o.learn(o.terms, now.Add(time.Duration(is.until-is.at)*time.Microsecond), nil)
		return o.terms, nil
	}
	_ = o.join(ctx, now)
	if ctx.Err() != nil {
		return terms{}, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !time.Now().Before(o.until) {
		return terms{}, unconnected(o.cause)
	}
	return o.inForce, nil
}

func unconnected(cause error) error {
	cause = cmp.Or(cause, errNoAgreement)
	return fmt.Errorf("lease: the region does not know what regions have agreed on at home: %w: %w", sash.ErrUnavailable, cause)
}

// missing returns why there is no own share as far as this process knows, or nil.
func (o *own) missing() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why
}

// learn notes which terms are in force until when, and why there is no own share.
func (o *own) learn(in terms, until time.Time, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if in != o.inForce {
		clear(o.divided)
	}
	o.inForce, o.until, o.why = in, until, why
	o.next = time.Time{}
}

// join agrees with the home on the own share, or prolongs it, unless another caller has since an instant. It returns why
// there is none, or why the home could not be asked: then what was known before still holds. The agreement outlives its
// caller, who may have less time than that takes.
func (o *own) join(ctx context.Context, since time.Time) error {
	select {
	case o.joining <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	o.mu.Lock()
	done, why, cause := o.asked.After(since), o.why, o.cause
	o.mu.Unlock()
	if done {
		<-o.joining
		return cmp.Or(cause, why)
	}
	ended := make(chan error, 1)
	go func() {
		err := o.joinAlone(context.WithoutCancel(ctx))
		<-o.joining
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// joinAlone is join of the one that talks with the home.
func (o *own) joinAlone(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil { // no caller is on this goroutine
			err = errPanic
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.asked, o.cause = time.Now(), err
		if err != nil {
			o.next = o.asked.Add(min(ownRetry, o.refresh))
			return
		}
		o.next, err = o.asked.Add(o.refresh), o.why
		if o.until.Before(o.next) {
			o.next = o.until
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*o.within)
	defer cancel()
	return o.agree(ctx)
}

// agree does so in three steps: the region's store has a name, the home adds it to the members, and the region's store
// records until when. The region's clock is read before the home's, so its own share ends first. One process of a region
// does so for all.
func (o *own) agree(ctx context.Context) error {
	began := time.Now()
	is, err := o.open(ctx)
	if err != nil {
		return err
	}
	if left := time.Duration(is.until-is.at) * time.Microsecond; is.holds(o.terms) && left > o.lasts-o.refresh {
		o.learn(o.terms, began.Add(left), nil) // another process was here
		return nil
	}
	longer := o.keeps + o.keeps/ownDrift + time.Microsecond // clocks of regions may be slower than the home's
	for range mostSwaps {
		began = time.Now()
		got, err := o.home.Swap(ctx, regionsKey, driver.Swap{})
		if err != nil {
			return err
		}
		all, err := readAgreement(got.Text)
		if err != nil {
			return err
		}
		all = all.at(got.At)
		next, why := all.join(o.terms, member{o.region, is.store, got.At + (longer + o.refresh).Microseconds()})
		if why != nil {
			left := min(time.Duration(all.ends()-got.At)*time.Microsecond, o.lasts)
			o.learn(all.terms, began.Add(left-left/ownDrift), why)
			return nil
		}
		done := all.has(o.region, got.At+longer.Microseconds())
		if !done {
			w := driver.Swap{Old: got.Text, New: next.text(), Lasts: (longer + o.refresh).Microseconds()}
			if got, err = o.home.Swap(ctx, regionsKey, w); err != nil {
				return err
			}
			done = got.Text == w.New
		}
		if done {
			err := o.write(ctx, is)
			why := err
			if is.holds(o.terms) && !errors.Is(err, errNoAgreement) {
				why = nil // what was recorded before still counts
			}
			o.learn(o.terms, began.Add(o.lasts), why)
			return err
		}
	}
	return fmt.Errorf("lease: other processes change what regions agree on all the time: %w", sash.ErrUnavailable)
}

// open returns the record of the region's store, which has a name then that no other store has, nor had this one before
// it lost its state.
func (o *own) open(ctx context.Context) (kept, error) {
	is, err := o.look(ctx)
	for range mostSwaps {
		if err != nil || is.record.process == is.process {
			return is, err
		}
		fresh := record{process: is.process, store: rand.Text()}
		err = o.replace(ctx, &is, fresh)
	}
	return is, fmt.Errorf("lease: other processes name the region's store all the time: %w", sash.ErrUnavailable)
}

// write records in the region's store that the region has an own share for as long as was agreed, from the instant at which
// the store was looked at.
func (o *own) write(ctx context.Context, is kept) error {
	until := is.at + o.lasts.Microseconds()
	for range mostSwaps {
		if is.record.process != is.process {
			return errNoAgreement
		}
		next := is.record
		if is.terms != o.terms {
			next.terms, next.until = o.terms, 0
		}
		next.until = max(next.until, until)
		if is.record == next {
			return nil
		}
		before := is.store
		if err := o.replace(ctx, &is, next); err != nil {
			return err
		}
		if is.store != before {
			return errNoAgreement // the store lost its state meanwhile
		}
	}
	return nil
}

// replace writes a record in place of one that is known, and reads it, whether or not another process came first.
func (o *own) replace(ctx context.Context, is *kept, next record) error {
	got, err := o.near.Swap(ctx, recordKey, driver.Swap{Old: is.text, New: next.text(), Lasts: (o.keeps + 2*o.refresh).Microseconds()})
	if err != nil {
		return err
	}
	is.text, is.process = got.Text, got.Process
	is.record, err = readRecord(got.Text)
	return err
}

// Agree agrees with the home on the own share of this region, or prolongs it. The error says why the region has none; nil
// is an own share, also while the home is silent. Calls do so by themselves, once a minute at most, so a program needs it
// only to report the state. Without Options.Own it does nothing.
func (s *Store) Agree(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	cause := s.own.join(ctx, time.Now())
	why := s.own.missing()
	if errors.Is(why, errNoAgreement) {
		return unconnected(cause)
	}
	return why
}

// Registered returns the names of the regions that have an own share at a home. The error says why this region would have
// none there; another store with its name is not looked for. It writes nothing, and needs no Store.
func (o *Own) Registered(ctx context.Context, home driver.Store) (regions []string, err error) {
	far, ok := driver.As[driver.Swapper](home)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	got, err := far.Swap(ctx, regionsKey, driver.Swap{})
	if err != nil {
		return nil, err
	}
	all, err := readAgreement(got.Text)
	if err != nil {
		return nil, err
	}
	all = all.at(got.At)
	me := member{region: o.Region}
	for _, m := range all.members {
		regions = append(regions, m.region)
		if m.region == o.Region {
			me.store = m.store
		}
	}
	_, err = all.join(terms{int64(o.Regions), int64(o.Percent)}, me)
	return regions, err
}
