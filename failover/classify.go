package failover

// ClassifyBy returns an Options.Classify that asks a store's package about its errors. For Redis:
//
//	Classify: failover.ClassifyBy(redisstore.Uncharged, redisstore.Misconfigured),
//
// An error that is not uncharged is Unknown, also if it is misconfigured: the permission for the second write of a
// script can be missing.
func ClassifyBy(uncharged, misconfigured func(error) bool) func(error) Kind {
	return func(err error) Kind {
		switch {
		case !uncharged(err):
			return Unknown
		case misconfigured(err):
			return Misconfigured
		}
		return Unsent
	}
}
