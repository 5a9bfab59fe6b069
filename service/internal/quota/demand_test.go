package quota

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A fleet is Envoys that report at different times, each to one of several instances of the service on one store.
type fleet []*fakeEnvoy

func (w *world) fleet(envoys, instances int) (all fleet) {
	for i := range envoys {
		if i > 0 && i*instances%envoys < instances {
			w.instance(w.decider.Config())
		}
		all = append(all, w.envoy())
		all[i].request("user=1")
		time.Sleep(4700 * time.Millisecond / time.Duration(envoys))
	}
	return all
}

// granted returns how many units all and one of them have been granted.
func (f fleet) granted(which int) (all, one int64) {
	for i, e := range f {
		e.mu.Lock()
		if all += e.granted; i == which {
			one = e.granted
		}
		e.mu.Unlock()
	}
	return all, one
}

// next waits until so many more units have been granted, and returns how many they were, and how many one Envoy got.
func (f fleet) next(units int64, which int) (all, one int64) {
	for before, had := f.granted(which); all < units; all, one = all-before, one-had {
		time.Sleep(100 * time.Millisecond)
		all, one = f.granted(which)
	}
	return all, one
}

// Of ten Envoys the one with nine tenths of the demand gets at least four fifths of the units, with the first push after the reports
// that show it: when demand begins, while the limit is used up, and when the demand has moved to another Envoy. So it is over two
// instances of the service on one store, which know the demand of each other after a report more.
func TestUnitsAreDividedByDemand(t *testing.T) {
	const phase, report = 125 * time.Second, 5350 * time.Millisecond // after which all have reported
	for _, instances := range []int{1, 2} {
		sums, shares := make(map[string]int64), make(map[string]int64)
		for _, seed := range []uint64{0, 3} {
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, rules)
				envoys := w.fleet(10, instances)
				began := time.Now()
				var together sync.WaitGroup
				for i, e := range envoys {
					together.Go(func() {
						defer e.kill()
						for n, heavy := range []int{0, 9} {
							rate := 10. / 9
							if i == heavy {
								rate = 90
							}
							e.send(random(100*seed+uint64(i)), "user=1", rate, time.Until(began.Add(time.Duration(n+1)*phase)))
						}
					})
				}
				next := func(what string, heavy int, after time.Duration, units int64) {
					time.Sleep(time.Until(began.Add(after)))
					sum, got := envoys.next(units, heavy)
					sums[what], shares[what] = sums[what]+sum, shares[what]+got
				}
				next("demand begins", 0, report*time.Duration(instances), 100)
				next("the limit is used up", 0, time.Minute, 900)
				next("demand has moved", 9, phase+report, 100)
				next("demand stays there", 9, phase+time.Minute, 900)
				together.Wait()
				if most := w.most(time.Minute); most > 1000 {
					t.Errorf("%d were admitted in a minute", most)
				}
			})
		}
		for what, sum := range sums {
			if shares[what]*10 < sum*8 {
				t.Errorf("%d instances, %s: of %d units %d were granted to the Envoy with nine tenths of the demand", instances, what, sum, shares[what])
			}
			t.Logf("%d instances, %s: %.0f %%", instances, what, 100*float64(shares[what])/float64(sum))
		}
	}
}

// An Envoy that comes after others have used up the limit gets its share within a window, at every instance.
func TestNobodyIsStarved(t *testing.T) {
	for _, instances := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, rules)
			envoys := w.fleet(3, instances)
			var together sync.WaitGroup
			for i, e := range envoys {
				together.Go(func() {
					defer e.kill()
					late := time.Duration(i/2) * 2 * time.Minute
					time.Sleep(late)
					e.send(random(uint64(i)), "user=1", 50, 5*time.Minute-late)
				})
			}
			time.Sleep(2 * time.Minute)
			if sum, got := envoys.next(1000, 2); got < sum/4 {
				t.Errorf("%d instances: with a third of the demand it was granted %d of %d units", instances, got, sum)
			}
			together.Wait()
		})
	}
}

// Bursts are admitted while the demand is well below the limit.
func TestBurstsAreAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		e := w.envoy()
		defer e.kill()
		e.request("user=1")
		for range 25 {
			time.Sleep(7300 * time.Millisecond)
			for range 25 {
				e.request("user=1")
			}
		}
		if n := len(w.admitted); n < 25*25*9/10 {
			t.Errorf("%d of %d requests were admitted", n, 25*25)
		}
	})
}

// A fault of a decision ends its stream, and not the process.
func TestAFaultEndsItsStream(t *testing.T) {
	w := begin(t, rules)
	w.service.Decider = nil // every decision is a fault
	st := &stream{Service: w.service, ctx: t.Context(), heard: time.Now()}
	st.buckets = map[string]*bucket{"user=1": {shared: &demand{}, used: time.Now()}}
	defer func() {
		if recover() == nil {
			t.Error("the fault is lost")
		}
	}()
	st.push()
}
