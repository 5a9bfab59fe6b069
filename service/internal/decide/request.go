package decide

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// A Request is what a port asks of the engine: one part, or several that are decided together.
type Request struct {
	Domain string
	Port   Port
	Parts  []Part
	// Any charges one of the parts instead of all, such as one of the credentials of a pool: see Decider.Decide.
	Any bool
	// Lenient answers every request, as Envoy's protocol does: an unknown domain limits nothing, a part of no units only
	// looks, and a part whose units can never fit is refused. Without Lenient, these three are errors.
	Lenient bool
	// Quota makes every part a quota, as quota_mode does for a rule: quotas refuse a request only if none of them has
	// room. A part that no rule matches has room, and a part under an unlimited rule is no quota.
	Quota bool
	// Counting counts as Envoy's service does, and charges each part by itself. Nil decides the parts together.
	Counting *Counting
	// ID identifies a request of one part that the caller may repeat: 1 to MaxIDLength bytes. An admitted request is
	// charged once within driver.RepeatTime, and a repetition gets the same answer. The same ID with another cost is
	// another request. Empty means that the request is not repeated.
	ID string
	// Within is how long a request of one part can wait. Without room, the part is booked behind earlier ones and starts
	// after Answer.Delay, which is at most Within. Zero does not wait. A part that does not bind never waits.
	Within time.Duration
	// Book lets the request wait for longer than the rule's MaxWait.
	Book bool
	// UpTo makes Reserve charge as many units as have room. Answer.Cost is then how many it charged.
	UpTo bool

	unknown bool          // the configuration does not have Domain
	held    []Reservation // one for each part, if the request is settled later; nil is none
}

// ErrNoQueue means that requests cannot wait under a rule, because of how it counts.
var ErrNoQueue = errors.New("a rule with count_refused or block, or with an algorithm other than sliding-log and sliding-buckets, has no queue to wait in")

// MaxAny is the most parts of a request with Any.
const MaxAny = 32

// ErrParts means that a request has too many parts.
var ErrParts = fmt.Errorf("a request has 1 to %d parts, or up to %d if any one is charged, and only one if it can wait or has an ID", sash.MaxSubjects, MaxAny)

// ErrTwice means that two parts have one subject, perhaps because their entries are charged together. A Lenient request may have them.
var ErrTwice = errors.New("the subject is there twice in a request: add up its costs")

// A Part is one subject for which a request asks for units. Envoy calls it a descriptor.
type Part struct {
	// Entries are the entries of the request. The Decider replaces secret values by their names, so others see only the names.
	Entries []config.Entry
	// Cost is the number of units asked for. Zero only looks.
	Cost int64
	// RequestLimit replaces the configuration's limits. Nil is none. A request limit of no units refuses everything.
	RequestLimit *sash.Limit
	// ByRule asks for the cost of the rule that matches, if one does, instead of Cost.
	ByRule bool
	// Always charges the units whether or not they have room, unless the rule sets count_refused.
	Always bool
	// Refund gives the units back instead of asking for them, if the rule sets how late a refund can come.
	Refund bool
	// Named accepts the name of a secret in place of its value, for operators. A client's value is always the secret itself.
	Named bool

	given   []sash.Limit     // the part contains its limits: see Given
	hidden  bool             // secret values in Entries have been replaced
	unnamed bool             // a value was secret, and there is no key to name it under
	older   [][]config.Entry // Entries under the other keys of the Decider, if there are exceptions
}

// One returns a request of one part. A nil cost means the cost of the rule that matches.
func One(domain string, entries []config.Entry, cost *int64) Request {
	part := Part{Entries: entries, ByRule: cost == nil}
	if cost != nil {
		part.Cost = *cost
	}
	return Request{Domain: domain, Parts: []Part{part}}
}

// An Answer is the decision on one Part.
type Answer struct {
	// Chosen is the index of the part that Request.Any chose.
	Chosen int
	// Rule is the rule that matched; nil when none did or the request has a request limit.
	Rule *config.Rule
	// Metric names the rule in statistics; empty when nothing limits the part.
	Metric string
	// Key is the subject that the part is charged to, as the configuration names it.
	Key string
	// Cost is the number of units asked for; negative for a refund.
	Cost int64
	// Refused says that a limit of this part had no room, even if the refusal does not bind.
	Refused bool
	// RefusedBy is the limit that refused; of several, the one that takes longest. If it has no name, the units can never fit.
	RefusedBy sash.LimitResult
	// BannedBy is the ban by which an operator refuses the subject; of several, the last to end. RefusedBy is then
	// called Ban, and nothing was charged. Nil is none. The caller must not change it.
	BannedBy *Exception
	// Blocked says that the subject was refused too often, and is kept out: see sash.Block.
	Blocked bool
	// Limits has the result of each limit. It is empty if nothing limits the part or the store was not asked.
	Limits []sash.LimitResult
	// At is the store's clock when it decided; zero if it was not asked.
	At time.Time
	// Delay is how long after the decision the request may start; zero unless the request was booked.
	Delay time.Duration
	// Source is where the answer came from, and Cause is why the store did not decide: see sash.Result. If Limits is
	// empty, Source is sash.FromPolicy when the store failed, and means nothing otherwise.
	Source sash.Source
	Cause  error
	// Candidate is the answer of the rule's candidate, or what it would have been: see config.Candidate. Nil is none, or
	// unknown. In the answer of a candidate, Enforced says that it limited the part: then the two answers are the same.
	Candidate *Answer
	Enforced  bool
	// Replaced says that another part's rule replaces this one's.
	Replaced bool
	// Fitted is how many of the units had room, if a Counting refused the part. The Counting charged all of them anyway,
	// unless it remembered that the subject is over its limit (sash.FromCache).
	Fitted int64

	limits     *limits       // the limits that the store decides; nil if it need not be asked
	candidate  *candidate    // the rule's; nil is none, and beside an override or a request limit
	need       int64         // the units that need room: of Cost, or of all parts of the subject if they can never fit together
	within     time.Duration // how far ahead the part may be booked
	queue      time.Duration // the longest queue of which a client has a share; zero without bookings or with the right to book
	refund     bool
	always     bool // the units are charged also if the request is refused
	quota      bool // one of several quotas of the request
	overridden bool // an operator's override limits the part
	spared     bool // another quota has room, so that this one does not bind
	never      bool // the units can never fit, or the subject is banned
	settles    bool // the charge is settled later
}

// Soft reports whether a refusal does not bind: in shadow_mode, or for a quota while another quota has room. A ban binds.
func (a *Answer) Soft() bool { return a.Shadow() || a.spared && a.BannedBy == nil }

// Shadow reports whether a refusal of the part never binds, because of shadow_mode.
func (a *Answer) Shadow() bool { return a.Rule != nil && a.Rule.Shadow && a.BannedBy == nil }

// Allowed reports whether the part lets the request go ahead: it has room, or does not bind.
func (a *Answer) Allowed() bool { return !a.Refused || a.Soft() }

// Lease returns the longest time before a call at which its unit may be charged; zero is none.
func (a *Answer) Lease() time.Duration {
	if a.limits == nil {
		return 0
	}
	return a.limits.place.Lease
}

// Limited reports whether anything limits the part.
func (a *Answer) Limited() bool { return a.limits != nil || a.BannedBy != nil }

// Tightest returns the limit with the fewest units left; false if there is none.
func (a *Answer) Tightest() (sash.LimitResult, bool) {
	if len(a.Limits) == 0 {
		return sash.LimitResult{}, false
	}
	return slices.MinFunc(a.Limits, func(x, y sash.LimitResult) int { return cmp.Compare(x.Remaining, y.Remaining) }), true
}

// A Port is the data port that a request came to. The zero value is HTTP.
type Port uint8

// Ports.
const (
	HTTP Port = iota
	GRPC
	RESP
	Ports // how many there are
)

// String returns the name of the port.
func (p Port) String() string { return [Ports]string{"http", "grpc", "resp"}[p] }

// ErrNoSecretKeys means that a value is secret and there is no key to name it under.
var ErrNoSecretKeys = errors.New("a secret value needs a key that is shared and kept: set SASH_SECRET_KEYS to at least 32 random bytes, " +
	"the same on all instances, such as from: openssl rand -base64 32")

// The name of a secret stands for its value in everything that is kept or shown. It is the HMAC of the value under the
// decider's first key. The engine replaces the value when a request comes in, and knows only the name from then on.
const (
	secretName   = "hmac-"
	noSecretName = secretName + "none" // without a key; nothing is counted under it
)

// NameSecrets sets the keys under which secret values are named, in place of this process's own key. The first key
// names subjects. Exceptions that were written under any of the keys hold. Without a key, a configuration with secret
// values is an error, now and in Use: ErrNoSecretKeys. NameSecrets must not be called while requests are being decided.
func (d *Decider) NameSecrets(keys ...[]byte) error {
	d.keys = keys
	return CheckKeys(d.Config(), keys)
}

// CheckKeys returns ErrNoSecretKeys if a configuration has secret values and there is no key.
func CheckKeys(cfg *config.Config, keys [][]byte) error {
	for _, rule := range cfg.Rules() {
		if len(rule.Secrets) > 0 && len(keys) == 0 {
			return fmt.Errorf("%s: the values of %q are secret (remove that with secret: false): %w", rule, rule.Secrets[0], ErrNoSecretKeys)
		}
	}
	return nil
}

// Named returns entries with names in place of secret values, for operators. Names stay as they are. The error is ErrNoSecretKeys.
func (d *Decider) Named(domain string, entries []config.Entry) ([]config.Entry, error) {
	named := d.named(d.Config(), domain, entries, 0, true)
	if len(d.keys) == 0 && len(entries) > 0 && &named[0] != &entries[0] {
		return named, ErrNoSecretKeys
	}
	return named, nil
}

// named returns entries with their secret values replaced by names under key i. With takeNames, it keeps values that are names already.
func (d *Decider) named(cfg *config.Config, domain string, entries []config.Entry, i int, takeNames bool) []config.Entry {
	return cfg.Hide(domain, entries, func(value string) string {
		mac, isName := strings.CutPrefix(value, secretName)
		sum, err := base64.RawURLEncoding.DecodeString(mac)
		switch {
		case takeNames && isName && err == nil && len(sum) == 32:
			return value
		case len(d.keys) == 0:
			return noSecretName
		}
		return secretName + sash.Secret(d.keys[i], value)
	})
}

// hide replaces the secret values of a part by their names. If there are exceptions, it sets older to the names under the other keys.
func (d *Decider) hide(r *rules, domain string, part *Part) {
	if part.hidden {
		return
	}
	part.hidden = true
	given := part.Entries
	part.Entries = d.named(r.config, domain, given, 0, part.Named)
	if len(given) == 0 || &part.Entries[0] == &given[0] {
		return
	}
	part.unnamed = len(d.keys) == 0
	for i := 1; i < len(d.keys) && r.excepts(); i++ {
		part.older = append(part.older, d.named(r.config, domain, given, i, part.Named))
	}
}
