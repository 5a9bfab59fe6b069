package resp

import (
	"strconv"
	"strings"

	"example.com/sash/service/internal/wire"
)

// A reply is the bytes of an answer, in RESP2, or in RESP3 after HELLO 3.
type reply struct {
	b  []byte
	v3 bool
}

var newlines = strings.NewReplacer("\r", " ", "\n", " ")

func (r *reply) line(kind byte, text string) {
	r.b = append(append(append(r.b, kind), newlines.Replace(text)...), "\r\n"...)
}

func (r *reply) text(s string) {
	r.list('$', int64(len(s)))
	r.b = append(append(r.b, s...), "\r\n"...)
}

func (r *reply) status(s string) { r.line('+', s) }
func (r *reply) number(n int64)  { r.list(':', n) }

// list begins a value with n parts: a list (*), a map (%), or the bytes of a text ($).
func (r *reply) list(kind byte, n int64) {
	r.b = append(strconv.AppendInt(append(r.b, kind), n, 10), "\r\n"...)
}

func (r *reply) fail(why *refusal) { r.line('-', why.Error()) }

// A field is a name and its value: see reply.value.
type field struct {
	name  string
	value any
}

func (r *reply) object(all []field) {
	if r.v3 {
		r.list('%', int64(len(all)))
	} else {
		r.list('*', int64(2*len(all)))
	}
	for _, f := range all {
		r.text(f.name)
		r.value(f.value)
	}
}

// value writes null, a text, a number, a bool, limits or seconds. A bool is 1 or 0, which programs in every language
// can add and compare. Seconds are a decimal exact to the microsecond, as a double or a text.
func (r *reply) value(of any) {
	switch v := of.(type) {
	case nil:
		r.null()
	case string:
		r.text(v)
	case int64:
		r.number(v)
	case bool:
		r.flag(v)
	case wire.Seconds:
		text, _ := v.MarshalJSON() // never fails
		if r.v3 {
			r.line(',', string(text))
		} else {
			r.text(string(text))
		}
	case []wire.Limit:
		r.list('*', int64(len(v)))
		for _, l := range v {
			all := []field{{"name", l.Name}, {"units", l.Units}, {"window", l.Window}, {"remaining", orNil(l.Remaining)}}
			if l.Period != "" {
				all = append(all, field{"period", l.Period})
			}
			r.object(all)
		}
	}
}

func (r *reply) null() {
	if r.v3 {
		r.line('_', "")
	} else {
		r.list('$', -1)
	}
}

func (r *reply) flag(is bool) {
	if is {
		r.number(1)
	} else {
		r.number(0)
	}
}

func (r *reply) decision(d *wire.Decision) {
	all := []field{
		{"allowed", d.Allowed}, {"remaining", orNil(d.Remaining)}, {"retry_after", d.RetryAfter}, {"reset_after", d.ResetAfter},
		{"refused_by", orNil(d.RefusedBy)}, {"limits", d.Limits}, {"source", orNil(d.Source)},
	}
	for _, f := range []field{
		{"part", orNil(d.Part)}, {"start_after", orNil(d.StartAfter)},
		{"blocked", d.Blocked}, {"shadow", d.Shadow}, {"cause", d.Cause}, {"token", d.Token},
	} {
		if f.value != nil && f.value != "" && f.value != false {
			all = append(all, f)
		}
	}
	r.object(all)
}

func orNil[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}
