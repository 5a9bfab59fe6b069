//go:build race

package failover

// seedsByDefault is smaller under the race detector, which makes a seed slow and needs few of them: make test
// runs all 2,000 without it.
const seedsByDefault = 150
