package coalesce

const (
	MostTrips    = mostTrips
	MostGathered = mostGathered
)
