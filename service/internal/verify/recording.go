package verify

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/internal/judge"
)

// A Recording holds the calls that a limiter answered, for any number of keys. One clock timed them all.
type Recording struct {
	keys     map[string]*recorded
	order    []string // the keys in order of first appearance
	units    int64    // of all calls
	answered bool     // whether any call was
}

// recorded holds the calls of one key. Each was decided between its two times, in nanoseconds since the epoch.
type recorded struct {
	admitted []judge.Charge
	refused  []judge.Charge
	unknown  []judge.Charge // calls without an answer, which may have been charged at any time after they were sent
}

const longestLine = 1 << 20

// ReadRecording reads calls, one JSON object per line:
//
//	{"key": "user_7", "cost": 1, "sent": 1763900000.001, "received": 1763900000.003, "admitted": true}
//
// A missing cost is 1. The times are RFC 3339, or seconds since any instant that all lines share, perhaps with
// a fraction. "sent" is rounded down to a microsecond, and "received" up. The two are equal if the decision has
// one time. A call without "admitted" or "received" had no answer. An error names the line, such as one with an
// unknown field. A recording without any answer is an error too.
func ReadRecording(name string, from io.Reader) (*Recording, error) {
	r := &Recording{keys: make(map[string]*recorded)}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longestLine)
	number := 0
	for lines.Scan() {
		number++
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if err := r.add(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s:%d: the line is longer than %d bytes", name, number+1, longestLine)
	}
	if lines.Err() != nil {
		return nil, lines.Err() // which names the file
	}
	if len(r.order) == 0 {
		return nil, fmt.Errorf("%s: there is no call in it", name)
	}
	if !r.answered {
		return nil, fmt.Errorf(`%s: no call in it has "admitted", true or false: there is nothing to judge`, name)
	}
	return r, nil
}

type line struct {
	Key      *string  `json:"key"`
	Cost     *int64   `json:"cost"`
	Sent     *instant `json:"sent"`
	Received *instant `json:"received"`
	Admitted *bool    `json:"admitted"`
}

func (r *Recording) add(text []byte) error {
	var l line
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil || !json.Valid(text) {
		return lineError(err)
	}
	cost := int64(1)
	if l.Cost != nil {
		cost = *l.Cost
	}
	switch {
	case l.Key == nil || *l.Key == "": // counting several keys as one would accuse a limiter that is exact
		return errors.New(`"key" is missing or empty: the subject that the limiter counted the call for; where there is only one, give all lines the same key`)
	case cost < 1 || cost > sash.MaxUnits:
		return fmt.Errorf(`"cost" is %d: it must be 1 to %d units`, cost, int64(sash.MaxUnits))
	case cost > math.MaxInt64-r.units:
		return errors.New("the costs up to here are too large to be added")
	case l.Sent == nil:
		return errors.New(`"sent" is missing: the time, in seconds or as RFC 3339, before the limiter was asked`)
	case l.Admitted != nil && l.Received == nil:
		return errors.New(`"received" is missing: the time, in seconds or as RFC 3339, after the limiter had answered`)
	case l.Received != nil && *l.Received < *l.Sent:
		return errors.New(`"received" is before "sent": take both from one clock that never goes back`)
	}
	of := r.keys[*l.Key]
	if of == nil {
		of = &recorded{}
		r.keys[*l.Key] = of
		r.order = append(r.order, *l.Key)
	}
	r.units += cost
	// Rounding to the nearest microsecond would place a decision outside the times of its call.
	c := judge.Charge{From: microsecondFrom(*l.Sent), Units: cost}
	if l.Admitted == nil {
		of.unknown = append(of.unknown, c)
		return nil
	}
	r.answered = true
	c.To = -microsecondFrom(-*l.Received)
	if *l.Admitted {
		of.admitted = append(of.admitted, c)
	} else {
		of.refused = append(of.refused, c)
	}
	return nil
}

func lineError(err error) error {
	if kind := (*json.UnmarshalTypeError)(nil); errors.As(err, &kind) && kind.Field != "" {
		return fmt.Errorf("%q cannot be a %s", kind.Field, kind.Value)
	}
	if errors.Is(err, errInstant) {
		return err
	}
	if _, name, ok := strings.Cut(fmt.Sprint(err), "unknown field "); ok { // it has no type
		return fmt.Errorf("unknown key %s: a call has key, cost, sent, received and admitted", name)
	}
	return errors.New(`it is not a JSON object such as {"key": "user_7", "sent": 1763900000.001, "received": 1763900000.003, "admitted": true}`)
}

// An instant is in nanoseconds since the epoch.
type instant int64

// microsecondFrom returns the last whole microsecond that is not after an instant.
func microsecondFrom(i instant) int64 {
	within := int64(i) % 1000
	if within < 0 { // before the epoch
		within += 1000
	}
	return int64(i) - within
}

var errInstant = errors.New(`a time is neither seconds, such as 1763900000.001, nor RFC 3339, such as "2026-11-23T10:00:00.001Z"`)

// latestSecond is in the year 2200. Larger numbers are milliseconds or a smaller unit.
const latestSecond = 7258118400

func (i *instant) UnmarshalJSON(text []byte) error {
	if string(text) == "null" { // as package json does, which calls this method for pointers that are not nil
		return nil
	}
	if text[0] == '"' {
		at, err := time.Parse(time.RFC3339, strings.Trim(string(text), `"`))
		if err != nil || at.Unix() > latestSecond || at.Unix() < -latestSecond {
			return errInstant
		}
		*i = instant(at.UnixNano())
		return nil
	}
	seconds, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return errInstant
	}
	if math.Abs(seconds) > latestSecond {
		return fmt.Errorf("%w: %s is too large for seconds; are these milliseconds?", errInstant, text)
	}
	exact, err := time.ParseDuration(string(text) + "s") // an exact decimal fraction, without the rounding of floating point
	if err != nil {
		exact = time.Duration(seconds * float64(time.Second)) // such as 1.7639e+09
	}
	*i = instant(exact)
	return nil
}

// Judge checks the calls of each key against sliding limits. It gives the limiter the benefit of the doubt: a
// call was decided at some instant between its two times, and a call without an answer may have been charged or
// not. The report lists the fault with the fullest window first.
func (r *Recording) Judge(limits []sash.Limit) Report {
	v := Report{Keys: len(r.order)}
	for _, key := range r.order {
		of := r.keys[key]
		v.Admitted += len(of.admitted)
		v.Refused += len(of.refused)
		v.Unanswered += len(of.unknown)
		for _, c := range of.admitted {
			v.Units += c.Units
		}
		f := Fault{Key: key}
		for _, l := range limits {
			worst, over := judge.Fullest(of.admitted, int64(l.Window), l.Units)
			f.OverAdmitted += over
			if worst.Units > l.Units && (f.Over == nil || worst.Units-l.Units > excess(f.Over)) {
				f.Over = &judge.Window{Limit: l, Units: worst.Units, Ends: time.Unix(0, worst.To)}
			}
		}
		f.False, f.FalseRefusals = judge.Needless(limits, of.admitted, of.unknown, of.refused)
		if f.OverAdmitted+f.FalseRefusals > 0 {
			v.Faults = append(v.Faults, f)
		}
	}
	v.sortFaults()
	return v
}
