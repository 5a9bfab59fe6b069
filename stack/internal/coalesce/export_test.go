package coalesce

const MostTrips = mostTrips
