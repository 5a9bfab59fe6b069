package adaptertest

import (
	"example.com/sash"
	"example.com/sash/driver"
)

// slidingLog is a policy of the default algorithm, to name Redis keys with.
var slidingLog = func() *driver.Policy {
	policy, err := sash.NewPolicy(nil, sash.PerMinute(1))
	if err != nil {
		panic(err)
	}
	return policy
}()
