package adaptertest

import "example.com/sash"

// slidingLog is a policy of the default algorithm, to name Redis keys with.
var slidingLog = func() *sash.Policy {
	policy, err := sash.NewPolicy(nil, sash.PerMinute(1))
	if err != nil {
		panic(err)
	}
	return policy
}()
