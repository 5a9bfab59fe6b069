//go:build race

package lease

// seedsByDefault is smaller under the race detector, which makes a seed slow and needs few of them: make test
// runs all 1,000 without it.
const seedsByDefault = 60
