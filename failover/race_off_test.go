//go:build !race

package failover

// seedsByDefault is how many seeds of the simulation run unless -seeds says otherwise.
const seedsByDefault = 2000
