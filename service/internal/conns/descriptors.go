package conns

import "math"

// Shares divides the descriptors of the process: up to a quarter, and 256, are kept for Redis and for files; up to an
// eighth, and 128, are for the connections of the admin port; and each of the data ports has an equal part of the rest,
// up to most.
func Shares(ports, most int) (data, admin int) { return shares(descriptors(), ports, most) }

func shares(descriptors uint64, ports, most int) (data, admin int) {
	limit := int(min(descriptors, math.MaxInt32))
	kept, admin := min(256, limit/4), min(128, limit/8)
	return min(most, (limit-kept-admin)/ports), admin
}
