//go:build !race

package lease

// seedsByDefault is how many seeds of the simulation run unless -seeds says otherwise.
const seedsByDefault = 1000
