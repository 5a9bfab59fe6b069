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
// An API counts a request when it arrives, and requests can arrive closer together than they were sent. So the store holds them to
// windows that are longer by [Options].Spread. Results and errors have the configured limits, and the times until a request may be sent.
//
// Requests that wait because they find no room, and those within a window after, start at least as far apart as the longest of
// the last ones has taken, and at most half as far as evenly. So few are on their way together when the API refuses one.
// Where all should be spread evenly, a further limit such as sash.Every(1, 200*time.Millisecond) does it.
//
// # Waiting
//
// A request that may wait books its place with one decision and sleeps until it starts. Requests of all processes, retries too, start in
// the order in which the store got them. A request whose context ends gives its place to those behind it. One whose turn comes in a
// cool-down books again after it, and so does one whose limit has been lowered, unless the queue is longer than a window. Where the
// store cannot book all the buckets of a call together, a request asks again when there should be room, in no order.
//
// With [Options].InFlight a request also takes one of so many slots, which all processes share, until its response's body
// has ended. The slot comes before the decision, so that nothing lies between a charge and the request.
//
// # Estimates
//
// A call with a Settle costs an estimate, such as the most tokens that a language model may use, and each response corrects it. Requests
// that wait start as soon as that makes room. Limits hold in every window while no estimate is too low. An estimate does not say how far
// apart requests should start, so a transport with such calls does not pace them because a window is full.
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
// configured one in as long again.
//
// A refusal without such fields, or with those of another quota alone, may say that a window is full: that of the limit with the smallest
// part left, if a quarter of it went through. The first is a cool-down, and requests that wait start farther apart until more has been
// served than went through before it. The next that agrees lowers the limit to what went through, at most three quarters of it. So does a
// first whose Retry-After is more than a second, and a quarter of the window to all of it. The level is held for a sixteenth of the
// window, 15 seconds at least, and rises to the limit in as long again, while requests that wait are spread evenly. A refusal while it
// rises holds it four times as long, up to two windows or a minute. Every process looks in the store for what others have lowered: before
// its first request to the bucket, after a cool-down and every ten seconds, with one round trip for each limit.
//
// # Cool-downs
//
// A 429, a vendor's equivalent (GitHub's 403), a 503 with Retry-After, or a response with nothing left begins a cool-down of the bucket:
// no process sends to it until that ends. A [Sign] in the response, also in its body, can say that the quota is used up until its reset
// (YouTube), or that the refusal is for every bucket of the account (Discord). Waiting calls add up to a tenth at random.
//
// A store that [driver.CanCool] keeps cool-downs, and looking for one is one more round trip before every call. With any other store they
// hold within one process.
//
// When a refusal gives no time the cool-down is [Profile].CoolDown, and while refusals of any process repeat, twice the last one, less up
// to a tenth at random. It is short again when the last one ended as long ago as it lasted, and ten seconds at least, or in a process
// that the API has served since. Malformed fields are ignored, and no cool-down is longer than [Options].MaxCoolDown.
package outgoing
