// Package outgoing limits calls to a remote API: an [http.RoundTripper] whose quota is shared by every process on the same store.
//
//	limit := sash.PerHour(5000)
//	transport, err := outgoing.New(store, outgoing.Everything(sash.Key("api", "v1")), nil, limit)
//	client := &http.Client{Transport: transport, Timeout: time.Minute}
//
// A [Route] returns the bucket and the cost of each request. The transport sends a request when every limit of every bucket has room,
// which is one decision of the store. A request without room waits within its context, or fails at once, as [Options].Refuse
// says. The error of a refusal is a [*sash.LimitedError] or a [*CoolDownError]. A 429 of the API is returned as a response.
//
// # Arrival
//
// An API counts a request when it arrives, and requests can arrive closer together than they were sent. So the windows in the store are
// longer by [Options].Spread. Results and errors report the configured limits, and the times until a request may be sent.
//
// While a window is full, and for a window after that, waiting requests are paced: they start as far apart as the
// slowest recent request took, but at most half as far apart as in an even spread. So few are in flight when the API
// refuses one. To spread all requests evenly, add a limit such as sash.Every(1, 200*time.Millisecond).
//
// # Waiting
//
// A request that may wait makes a booking with one decision and sleeps until its start. The requests of all processes, retries included,
// start in the order in which the store received them. When a context ends, its request gives its place to those behind it. A request whose
// turn comes during a cool-down books again afterwards. So does a request whose limit was lowered, unless the queue is longer than a
// window. If the store cannot book all buckets of a call together, requests ask again when there should be room, in no order.
//
// With [Options].InFlight a request also takes a slot, shared by all processes, until its response's body has ended. It takes the slot
// before the decision, so that it is sent as soon as it is charged.
//
// # Estimates
//
// The cost of a call with a Settle is an estimate, such as the most tokens that a language model may use ([EstimateRequest]). The
// response corrects it, and waiting requests start as soon as that makes room. Limits hold in every window while no estimate is
// too low. An estimate does not say how far apart requests should start, so such calls are not paced because a window is full.
//
// # What it learns
//
// The transport reads quotas from responses, as a [Profile] describes them. If the API has counted more than
// the store, because others use the same credential or a server lost state, the limit drops at once to
//
//	level = units that the store has counted + units that the API reports as left
//
// The level rises again by the limit's units per window, up to the configured limit, and is gone one window
// later. Each process learns these levels from its own responses.
//
// If the API states a lower limit for the same window, the lower limit holds for twelve windows (a minute at
// least, an hour at most). Then it rises to the configured limit in as long again.
//
// A refusal without such fields, or with fields of another quota only, may mean that a window is full. The transport suspects the
// limit with the smallest part left, if at least a quarter of it went through. The first such refusal begins a cool-down. Waiting
// requests then start farther apart, until more requests were served than went through before the refusal. The next refusal that
// agrees lowers the limit to the units that went through, at most three quarters of it. A first refusal does so too if its
// Retry-After is more than a second, and between a quarter of the window and all of it. The level holds for a sixteenth of the
// window, 15 seconds at least. It rises to the limit in as long again, while waiting requests are spread evenly. A refusal during
// the rise makes it hold four times as long, up to two windows or a minute. The store keeps these levels for other processes,
// which look before their first request to a bucket, after a cool-down and every ten seconds, with a round trip for each limit.
//
// # Cool-downs
//
// A 429, a vendor's equivalent (GitHub's 403), a 503 with Retry-After, or a response with nothing left begins a cool-down of the
// bucket. No process sends to the bucket until it ends. A [Sign] in the response or its body can say that the quota is used up until
// its reset (YouTube), or that the refusal is for every bucket of the account (Discord). Waiting calls add up to a tenth at random.
//
// A store that [driver.CanCool] keeps cool-downs, and every call looks for one with an additional round trip.
// With any other store, a cool-down applies within one process.
//
// If a refusal gives no time, the cool-down is [Profile].CoolDown. While refusals of any process repeat, each cool-down is twice
// as long as the last, less up to a tenth at random. It is short again once the API has served this process, or after a pause as
// long as the last cool-down, ten seconds at least. Malformed fields are ignored, and no cool-down exceeds [Options].MaxCoolDown.
package outgoing
