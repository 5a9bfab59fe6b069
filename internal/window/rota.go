package window

import (
	"slices"

	"example.com/sash/driver"
)

// A Rota is the lines that wait for slots of a subject under one limit, in the order of their turns: see [driver.Hander].
// The zero value has none.
type Rota struct {
	lines  []place
	passed int64 // how often others were admitted past the first
}

// A place is a line in a rota.
type place struct {
	line uint64
	ends int64 // when the line loses it
}

// May reports whether a line may get a slot now. It drops lines that have not asked in time, and those that a clock
// which went back would keep.
func (r *Rota) May(now int64, line *driver.Line) bool {
	first := r.first()
	r.lines = slices.DeleteFunc(r.lines, func(p place) bool { return p.ends <= now || p.ends > now+driver.MaxStay })
	if r.first() != first {
		r.passed = 0
	}
	return len(r.lines) == 0 || r.lines[0].line == line.Name || r.passed < line.Most
}

// Asked records the answer to a line, after May.
func (r *Rota) Asked(now int64, line *driver.Line, admitted bool) {
	i := slices.IndexFunc(r.lines, func(p place) bool { return p.line == line.Name })
	switch {
	case admitted && i == 0:
		r.passed = 0
	case admitted && len(r.lines) > 0:
		r.passed++
	}
	goes := admitted && (i == 0 || !line.More)
	joins := !admitted || i == 0 && line.More
	if i >= 0 && goes {
		r.lines, i = slices.Delete(r.lines, i, i+1), -1
	}
	switch ends := now + line.Stays; {
	case i >= 0:
		r.lines[i].ends = ends
	case joins && len(r.lines) < driver.MaxLines:
		r.lines = append(r.lines, place{line.Name, ends})
	}
}

// first returns the line whose turn it is, or 0.
func (r *Rota) first() uint64 {
	if len(r.lines) == 0 {
		return 0
	}
	return r.lines[0].line
}
