package adaptertest

import (
	"example.com/sash"
	"example.com/sash/driver"
)

// slidingLog is a policy of the default algorithm, with which tests find the names of Redis keys.
var slidingLog = func() *driver.Policy {
	policy, err := sash.NewPolicy(nil, sash.PerMinute(1))
	if err != nil {
		panic(err)
	}
	return policy
}()
