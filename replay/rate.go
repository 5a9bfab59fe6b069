package replay

// A rate finds the most units within any window of several lengths. Times come in order.
type rate struct {
	windows []rateWindow
	charges []charge // those before the oldest window are dropped from time to time
	gone    int      // how many were dropped
}

type rateWindow struct {
	length    int64 // microseconds
	tail      int   // the number of the first charge within the window
	sum, most int64
	left      func(charge) // called for each charge that leaves; may be nil
}

type charge struct {
	at, units int64
	client    uint32
}

func newRate(lengths ...int64) *rate {
	r := &rate{}
	for _, l := range lengths {
		r.windows = append(r.windows, rateWindow{length: l})
	}
	return r
}

func (r *rate) add(c charge) {
	r.charges = append(r.charges, c)
	oldest := r.gone + len(r.charges)
	for i := range r.windows {
		w := &r.windows[i]
		w.sum += c.units
		for r.charges[w.tail-r.gone].at <= c.at-w.length {
			leaves := r.charges[w.tail-r.gone]
			w.sum -= leaves.units
			w.tail++
			if w.left != nil {
				w.left(leaves)
			}
		}
		w.most = max(w.most, w.sum)
		oldest = min(oldest, w.tail)
	}
	if drop := oldest - r.gone; drop > 32 && drop > len(r.charges)/2 {
		r.charges = append(r.charges[:0], r.charges[drop:]...)
		r.gone = oldest
	}
}
