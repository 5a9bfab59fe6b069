// Package outgoing limits calls to a remote API: an [http.RoundTripper] whose quota is shared by every process on the same store.
//
//	limit := sash.PerHour(5000)
//	transport, err := outgoing.New(store, outgoing.Everything(sash.Key("api", "v1")), nil, limit)
//	client := &http.Client{Transport: transport, Timeout: time.Minute}
//
// A [Route] returns the bucket and the cost of each request. The transport sends the request once every limit of every bucket has room,
// in one decision of the store. A call without room waits within its context, or is refused, as [Options].Refuse says. A refusal is an
// error, [*sash.LimitedError] or [*CoolDownError]; a 429 of the API is a response and stays one.
//
// # Arrival
//
// An API counts a request when it arrives, so requests whose ways differ can arrive closer together than they were
// sent. The store therefore holds them to windows that are longer by [Options].Spread. Results and errors have the
// limits as they are configured; their times are those until a request may be sent.
//
// Requests that wait because they find no room, and those within a window after, start at least as far apart as the longest of
// the last ones has taken, and at most half as far as evenly. So few are on their way together when the API refuses one.
// Where all should be spread evenly, a further limit such as sash.Every(1, 200*time.Millisecond) does it.
//
// # Waiting
//
// A request that may wait books its place with one decision and sleeps until it starts. Requests of all processes start in the order in
// which the store got them, retries at the end like others. A request whose context ends gives its place to those behind it. A request
// whose turn comes in a cool-down gives its place back and books again after it, and so does one whose limit has been lowered since,
// unless the queue is longer than a window. Where the store does not book, or not all the buckets of a call together, a request asks
// again when there should be room, in no order.
//
// With [Options].InFlight a request also takes one of so many slots, which all processes share, until its response's body
// has ended. The slot comes before the decision, so that nothing lies between a charge and the request.
//
// # Estimates
//
// A call with a Settle costs an estimate, such as the most tokens that a language model may use, and each response corrects
// it. Requests that wait start as soon as that makes room. Limits hold in every window while no estimate is too low. An estimate
// is no measure of how far apart requests should start, so a transport with such calls does not pace them because a window
// is full.
//
// # What it learns
//
// The transport reads quotas from responses, as a [Profile] describes them. If the API has counted more than the
// store has, because others use the same credential or a server lost state, the limit has a lower level at once:
//
//	level = units that the store has counted + units that the API reports as left
//
// The level rises again by the limit's units per window, and is gone one window later. It never exceeds the
// configured limit. Each process learns these levels from its own responses.
//
// A limit that the API states for the same window is held for twelve windows (a minute at least, an hour at most), and then rises to the
// configured one in as long again. A refusal without such fields, or with those of another quota alone, such as that of a day, may say
// that a window is full: the one of the limit of which the smallest part was left, and of which a quarter went through. One such refusal
// is a cool-down, and requests that wait start farther apart until more has been served than went through before it. Another refusal that
// agrees lowers the limit to what went through, at most three quarters of it, and so does one whose Retry-After is more than a second,
// and a quarter of the window to all of it. The level is held for a sixteenth of the window, 15 seconds at least, and rises to the limit
// in as long again, while requests that wait are spread evenly; a refusal while it rises holds it four times as long, up to two windows
// or a minute. The store keeps it for the other processes: each looks for it before its first request to the bucket, after a cool-down
// and every ten seconds, before a charge, which is one round trip for each limit. Requests on their way together are refused together.
// With [Options].KeepLimits a refusal is a cool-down and nothing else.
//
// # Cool-downs
//
// A 429, a vendor's equivalent (GitHub's 403), a 503 with Retry-After, or a response with nothing left begins a
// cool-down of the bucket: no process sends to it until the cool-down ends. A [Sign] in the response, also in its
// body, can say more: that the quota is used up until its reset (YouTube), or that the refusal is for every
// bucket of the account (Discord). A waiting call adds up to a tenth of the cool-down at random.
//
// The store keeps cool-downs if it [driver.CanCool], as those of sash are; looking for one is one more round trip
// before every call. With any other store, cool-downs hold within one process only.
//
// When a refusal gives no time the cool-down is [Profile].CoolDown. While refusals repeat it is twice the last one,
// less up to a tenth at random. It is short again once the API serves a request that was sent after the last cool-down,
// or when that ended as long ago as it lasted, and ten seconds at least. Processes read the last cool-down from the
// store, so it grows with the refusals of all of them; only the process whose request was served knows of that.
//
// The transport does not trust an API's fields: it ignores malformed ones, and no cool-down is longer than [Options].MaxCoolDown.
package outgoing
