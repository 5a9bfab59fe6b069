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

func (r *reply) text(s string)  { r.b = redcon.AppendBulkString(r.b, s) }
func (r *reply) bytes(b []byte) { r.b = redcon.AppendBulk(r.b, b) }
func (r *reply) status(s string) {
	r.b = redcon.AppendString(r.b, s)
}
func (r *reply) number(n int64) { r.b = redcon.AppendInt(r.b, n) }
func (r *reply) list(n int)     { r.b = redcon.AppendArray(r.b, n) }

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

func (r *reply) null() {
	if r.v3 {
		r.b = append(r.b, "_\r\n"...)
	} else {
		r.b = redcon.AppendNull(r.b)
	}
}

// flag is 1 or 0, which programs in every language can add and compare.
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

// A field is a name with what writes its value.
type field struct {
	name  string
	write func()
}

// object writes fields.
func (r *reply) object(all []field) {
	r.fields(len(all))
	for _, f := range all {
		r.text(f.name)
		f.write()
	}
}

// decision has the names and values of the same decision over HTTP.
func (r *reply) decision(d *wire.Decision) {
	all := []field{
		{"allowed", func() { r.flag(d.Allowed) }},
		{"remaining", func() { r.optional(d.Remaining) }},
		{"retry_after", func() { r.seconds(d.RetryAfter) }},
		{"reset_after", func() { r.seconds(d.ResetAfter) }},
		{"refused_by", func() { r.name(d.RefusedBy) }},
		{"limits", func() {
			r.list(len(d.Limits))
			for i := range d.Limits {
				r.limit(&d.Limits[i])
			}
		}},
		{"source", func() { r.name(d.Source) }},
	}
	if d.StartAfter != nil {
		all = append(all, field{"start_after", func() { r.seconds(*d.StartAfter) }})
	}
	if d.Blocked {
		all = append(all, field{"blocked", func() { r.flag(true) }})
	}
	if d.Shadow {
		all = append(all, field{"shadow", func() { r.flag(true) }})
	}
	if d.Cause != "" {
		all = append(all, field{"cause", func() { r.text(d.Cause) }})
	}
	if d.Token != "" {
		all = append(all, field{"token", func() { r.text(d.Token) }})
	}
	r.object(all)
}

func (r *reply) limit(l *wire.Limit) {
	all := []field{
		{"name", func() { r.text(l.Name) }},
		{"units", func() { r.number(l.Units) }},
		{"window", func() { r.seconds(l.Window) }},
		{"remaining", func() { r.optional(l.Remaining) }},
	}
	if l.Period != "" {
		all = append(all, field{"period", func() { r.text(l.Period) }})
	}
	r.object(all)
}

func (r *reply) optional(n *int64) {
	if n == nil {
		r.null()
		return
	}
	r.number(*n)
}

func (r *reply) name(s *string) {
	if s == nil {
		r.null()
		return
	}
	r.text(*s)
}

// wholeSeconds rounds up, so that who waits for them does not come too early.
func wholeSeconds(d time.Duration) int64 { return wire.Seconds(d).RoundUp() }
