package load

import "time"

// A Meter returns a total that grows while decisions are made, such as microseconds of processor time.
type Meter func() (float64, error)

// Sum returns a meter of the sum of several.
func Sum(meters ...Meter) Meter {
	return func() (all float64, err error) {
		for _, meter := range meters {
			one, err := meter()
			if err != nil {
				return 0, err
			}
			all += one
		}
		return all, nil
	}
}

// AtRest returns what a meter of microseconds counts while nobody calls, in milliseconds a second.
func AtRest(meter Meter, wait time.Duration) (float64, error) {
	before, err := meter()
	if err != nil {
		return 0, err
	}
	time.Sleep(wait)
	after, err := meter()
	return (after - before) / 1e3 / wait.Seconds(), err
}
