// Package outgoing limits calls to somebody else's API: an [http.RoundTripper] whose quota is shared by
// every process on the same store.
//
//	limit := sash.PerHour(5000)
//	transport, err := outgoing.New(store, outgoing.Everything(sash.Key("api", "v1")), nil, limit)
//	client := &http.Client{Transport: transport, Timeout: time.Minute}
//
// A [Route] names the bucket and the cost of each request. The request is sent once every limit of every
// bucket has room, in one decision of the store. A call that has no room waits within its context, or is
// refused, as [Options].Mode says. A refusal is an error, [*sash.LimitedError] or [*CoolDownError]; a 429
// of the API is a response and stays one.
//
// # What it learns
//
// Answers are read for what they say about quotas, as a [Profile] describes them. If the API has counted
// more than the store has, because others use the same credential or a server lost state, the limit is
// tightened at once:
//
//	ceiling = units the store has counted + units that the API says are left
//
// and rises again by the limit's units per window, so that it is loose again one window later. It never
// rises above the limit that was configured. Each process learns its ceilings from its own answers.
//
// A 429, a vendor's other form of it (GitHub's 403), a 503 with Retry-After, or an answer that says nothing
// is left makes a cool-down for that bucket: no process sends to it until it ends. A [Sign] in the answer,
// also in its body, can say more: that the quota is used up until its reset (YouTube), or that the refusal
// is for every bucket of the account (Discord). Cool-downs are in the
// store, under a key of their own, and are looked up before every call, which costs one more round trip.
// A waiting call adds up to a tenth of the cool-down at random, so that not all come back at the same instant.
//
// When a refusal gives no time the cool-down is [Profile].CoolDown, and twice the last one, less up to a tenth at
// random, while refusals repeat, up to [Options].MaxCoolDown. It is short again once the API serves a request
// that was sent after the last one, or when that is as long ago as it lasted and ten seconds at least. Processes
// learn the last cool-down from the store, so that it grows with the refusals of all; what was served is known to
// the process that was served.
//
// What an API says is not trusted: malformed fields are ignored, and no cool-down is longer than
// [Options].MaxCoolDown.
package outgoing
