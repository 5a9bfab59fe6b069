package resp

import (
	"strconv"
	"time"

	"github.com/tidwall/redcon"

	"example.com/sash/service/internal/wire"
)

// A reply is the bytes of an answer, in RESP2, or in RESP3 after HELLO 3.
type reply struct {
	b  []byte
	v3 bool
}

func (r *reply) text(s string)   { r.b = redcon.AppendBulkString(r.b, s) }
func (r *reply) bytes(b []byte)  { r.b = redcon.AppendBulk(r.b, b) }
func (r *reply) status(s string) { r.b = redcon.AppendString(r.b, s) }
func (r *reply) number(n int64)  { r.b = redcon.AppendInt(r.b, n) }
func (r *reply) list(n int)      { r.b = redcon.AppendArray(r.b, n) }

// fail is an error: a code in capitals, and a text.
func (r *reply) fail(code, text string) { r.b = redcon.AppendError(r.b, code+" "+text) }

// fields begins n names with a value each: a map, or a list of twice as many.
func (r *reply) fields(n int) {
	if !r.v3 {
		r.list(2 * n)
		return
	}
	r.b = append(r.b, '%')
	r.b = strconv.AppendInt(r.b, int64(n), 10)
	r.b = append(r.b, "\r\n"...)
}

// A field is a name and its value: see reply.value.
type field struct {
	name  string
	value any
}

// object writes fields.
func (r *reply) object(all []field) {
	r.fields(len(all))
	for _, f := range all {
		r.text(f.name)
		r.value(f.value)
	}
}

// value writes a text, a number, a bool as 1 or 0, which programs in every language can add and compare, seconds, limits,
// or a pointer to one of the first two, which may be nil.
func (r *reply) value(of any) {
	switch v := of.(type) {
	case string:
		r.text(v)
	case int64:
		r.number(v)
	case *string:
		if v == nil {
			r.null()
			return
		}
		r.text(*v)
	case *int64:
		if v == nil {
			r.null()
			return
		}
		r.number(*v)
	case bool:
		r.flag(v)
	case wire.Seconds:
		r.seconds(v)
	case []wire.Limit:
		r.list(len(v))
		for i := range v {
			r.limit(&v[i])
		}
	}
}

func (r *reply) null() {
	if r.v3 {
		r.b = append(r.b, "_\r\n"...)
	} else {
		r.b = redcon.AppendNull(r.b)
	}
}

func (r *reply) flag(is bool) {
	if is {
		r.number(1)
	} else {
		r.number(0)
	}
}

// seconds is a decimal, exact to the microsecond: a double, or a text.
func (r *reply) seconds(d wire.Seconds) {
	text, _ := d.MarshalJSON() // never fails
	if r.v3 {
		r.b = append(append(append(r.b, ','), text...), "\r\n"...)
	} else {
		r.bytes(text)
	}
}

// decision has the names and values of the same decision over HTTP.
func (r *reply) decision(d *wire.Decision) {
	all := []field{
		{"allowed", d.Allowed}, {"remaining", d.Remaining}, {"retry_after", d.RetryAfter}, {"reset_after", d.ResetAfter},
		{"refused_by", d.RefusedBy}, {"limits", d.Limits}, {"source", d.Source},
	}
	if d.StartAfter != nil {
		all = append(all, field{"start_after", *d.StartAfter})
	}
	if d.Blocked {
		all = append(all, field{"blocked", true})
	}
	if d.Shadow {
		all = append(all, field{"shadow", true})
	}
	for _, f := range []field{{"cause", d.Cause}, {"token", d.Token}} {
		if f.value != "" {
			all = append(all, f)
		}
	}
	r.object(all)
}

func (r *reply) limit(l *wire.Limit) {
	all := []field{{"name", l.Name}, {"units", l.Units}, {"window", l.Window}, {"remaining", l.Remaining}}
	if l.Period != "" {
		all = append(all, field{"period", l.Period})
	}
	r.object(all)
}

// wholeSeconds rounds up, so that who waits for them does not come too early.
func wholeSeconds(d time.Duration) int64 { return wire.Seconds(d).RoundUp() }
