package failover

import "fmt"

// A Kind is a kind of failure.
type Kind uint8

// The kinds of failure.
const (
	Unknown       Kind = iota // the store failed and may have charged the call
	Unsent                    // the store failed and did not charge the call
	Misconfigured             // the store rejected the call, such as for a wrong password, and did not charge it
	Rejected                  // the store works and rejected only this call: no failure, and no failure mode answers
)

var kindNames = [...]string{Unknown: "unknown", Unsent: "unsent", Misconfigured: "misconfigured", Rejected: "rejected"}

// String returns "unknown", "unsent", "misconfigured" or "rejected".
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

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
