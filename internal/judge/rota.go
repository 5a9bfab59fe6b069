package judge

import "example.com/sash/driver"

// A Rota is whose turn it is among lines that wait for slots, by the definition in driver.Hander. The zero value has no line.
type Rota struct {
	waits  map[uint64]*waiting
	came   int
	first  uint64 // the line whose turn it is, or 0
	passed int64  // how often others were admitted since it became the first
}

// waiting is a line in the rota.
type waiting struct {
	came int   // a lower number is before a higher one
	ends int64 // when it loses its place
}

// Ask returns whether a line gets a slot that may be free, at an instant in microseconds.
func (r *Rota) Ask(now int64, line driver.Line, free bool) (turn, admitted bool) {
	for name, w := range r.waits {
		if w.ends <= now || w.ends > now+driver.MaxStay {
			delete(r.waits, name)
		}
	}
	r.look()
	turn = r.first == 0 || r.first == line.Name || r.passed < line.Most
	admitted = turn && free
	w, back := r.waits[line.Name], admitted && line.More && r.first == line.Name
	if admitted && r.first != 0 {
		r.passed++
	}
	if admitted && (r.first == line.Name || !line.More) {
		delete(r.waits, line.Name)
		w = nil
		if r.first == line.Name {
			r.first = 0 // its turn is over
		}
	}
	if w != nil {
		w.ends = now + line.Stays
	} else if (!admitted || back) && len(r.waits) < driver.MaxLines {
		if r.waits == nil {
			r.waits = make(map[uint64]*waiting)
		}
		r.came++
		r.waits[line.Name] = &waiting{r.came, now + line.Stays}
	}
	r.look()
	return turn, admitted
}

// look finds the first line.
func (r *Rota) look() {
	first := uint64(0)
	for name, w := range r.waits {
		if first == 0 || w.came < r.waits[first].came {
			first = name
		}
	}
	if first != r.first {
		r.first, r.passed = first, 0
	}
}
