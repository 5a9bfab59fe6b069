package decide

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
)

// Ban takes the place of a limit's name in the refusal of a banned subject.
const Ban = "ban"

// An Exception replaces the rule of one subject for a while, by other limits or by a ban. An operator makes it.
type Exception struct {
	// Domain and Entries select requests. An override applies to exactly these entries. A ban applies to all requests
	// that begin with them, and a network stands for all addresses in it. If a rule charges several values together
	// (share_threshold), the rule's value, with its *, selects all of them. Any other value selects itself alone.
	Domain  string
	Entries []config.Entry
	// Limits replace the rule's limits. None is a ban.
	Limits []sash.Limit
	Until  time.Time
}

type override struct {
	limits *limits
	by     *Exception
}

// Except replaces the exceptions in force. An exception that ends need not be removed.
func (d *Decider) Except(all []Exception) {
	d.changing.Lock()
	defer d.changing.Unlock()
	d.excepted = all
	r := *d.rules.Load()
	d.except(&r, all)
	d.rules.Store(&r)
}

// except puts exceptions into rules that are not in use yet. If an override no longer fits because the configuration
// changed, its subject falls back to the rule: see CheckException. A ban holds under every configuration.
func (d *Decider) except(r *rules, all []Exception) {
	r.overrides, r.bans = nil, nil
	for i := range all {
		e := &all[i]
		if len(e.Limits) == 0 {
			tree := child(&r.bans, e.Domain)
			tree.insert(e, false)
			tree.insert(e, true)
			continue
		}
		l, err := d.compileOverride(r, *e)
		if err != nil {
			continue
		}
		if r.overrides == nil {
			r.overrides = make(map[string]*override)
		}
		r.overrides[config.Key(e.Domain, e.Entries)] = &override{l, e}
	}
}

// compileOverride makes the limits of an override ready. They keep the rule's algorithm, so that earlier charges count.
func (d *Decider) compileOverride(r *rules, e Exception) (*limits, error) {
	found, err := r.config.Find(e.Domain, e.Entries)
	if err != nil {
		return nil, err
	}
	rule := found.Rule
	if rule == nil {
		return nil, fmt.Errorf("%w: no descriptor of the configuration matches these entries", ErrNotLimited)
	}
	l, err := d.compileLimits(rule.Place.For(e.Limits, rule.Options), &rule.Options, e.Limits, rule.OnUnavailable)
	if err != nil {
		return nil, err
	}
	for _, limit := range e.Limits {
		if rule.Cost > limit.Units {
			return nil, fmt.Errorf("%w: the descriptor's cost of %d units can never fit into %s", sash.ErrInvalidLimit, rule.Cost, limit)
		}
	}
	return l, nil
}

// CheckException returns what is wrong with an exception under the configuration in use. The error may be
// config.ErrUnknownDomain. For an override it may be ErrNotLimited, or sash.ErrInvalidLimit if the rule's algorithm
// cannot count its limits. For a ban it is config.ErrNoDescriptor if no counted request can begin with its entries,
// or if a value looks like a network but is not valid. An override that no longer passes has no effect.
func (d *Decider) CheckException(e Exception) error {
	r := d.rules.Load()
	if len(e.Limits) > 0 {
		_, err := d.compileOverride(r, e)
		return err
	}
	if err := r.config.Reach(e.Domain, e.Entries); err != nil {
		return err
	}
	return checkNetworks(r.config, e.Domain, e.Entries)
}

func (a *Answer) ban(by *Exception) {
	left := max(time.Until(by.Until).Truncate(time.Microsecond), time.Microsecond)
	a.BannedBy, a.never = by, true
	a.answerBy(sash.Limit{Name: Ban}, true, left)
}

// A banTree holds the bans of a domain, one level for each entry. A lookup follows the request's entries down, and a ban may
// end at each node on the way. For an address or a network, the lookup reads the map once for each prefix length in use.
type banTree struct {
	by      *Exception // the ban that ends here; of several, the last to end; nil is none
	below   map[banEdge]*banTree
	lengths []int // of the prefixes in below
}

// A banEdge is one entry of a ban: a key, and a value or a network.
type banEdge struct {
	key, value string
	network    netip.Prefix
	// client says that the ban is on a part of network, which is then a /64. The limit of a proxy counts a /64 as one client.
	client bool
}

// insert adds a ban. With asClient, it adds the ban for requests that name addresses by their /64. It then adds
// nothing if the ban has no network longer than /64.
func (t *banTree) insert(e *Exception, asClient bool) {
	found := false
	for _, entry := range e.Entries {
		edge := banEdge{key: entry.Key, value: entry.Value}
		if p, isNet := network(entry.Value); isNet {
			edge = banEdge{key: entry.Key, network: p}
			if asClient && p.Addr().Is6() && p.Bits() > clientBits {
				edge.network, edge.client, found = netip.PrefixFrom(p.Addr(), clientBits).Masked(), true, true
			} else if !slices.Contains(t.lengths, p.Bits()) {
				t.lengths = append(t.lengths, p.Bits())
			}
		}
		t = child(&t.below, edge)
	}
	if (found || !asClient) && (t.by == nil || e.Until.After(t.by.Until)) {
		t.by = e
	}
}

// child returns the subtree of a key. It creates the subtree if there is none.
func child[K comparable](of *map[K]*banTree, key K) *banTree {
	if *of == nil {
		*of = make(map[K]*banTree)
	}
	if (*of)[key] == nil {
		(*of)[key] = &banTree{}
	}
	return (*of)[key]
}

// find returns the ban that ends last: best, or a ban on these entries or on those that the rule charges. A nil tree has no bans.
func (t *banTree) find(entries, charged []config.Entry, now time.Time, best *Exception) *Exception {
	if t == nil {
		return best
	}
	if t.by != nil && now.Before(t.by.Until) && (best == nil || t.by.Until.After(best.Until)) {
		best = t.by
	}
	if len(entries) == 0 {
		return best
	}
	e := entries[0]
	follow := func(edge banEdge) { best = t.below[edge].find(entries[1:], charged[1:], now, best) }
	follow(banEdge{key: e.Key, value: e.Value})
	if charged[0] != e {
		follow(banEdge{key: charged[0].Key, value: charged[0].Value})
	}
	if len(t.lengths) == 0 {
		return best
	}
	if p, isNet := network(e.Value); isNet {
		for _, bits := range t.lengths {
			if bits <= p.Bits() {
				follow(banEdge{key: e.Key, network: netip.PrefixFrom(p.Addr(), bits).Masked()})
			}
		}
		follow(banEdge{key: e.Key, network: p, client: true})
	}
	return best
}

// network returns the network that a value names: an address is a network of one, and IPv4 within IPv6 is IPv4.
func network(value string) (netip.Prefix, bool) {
	if !strings.ContainsAny(value, ".:") || strings.IndexByte("0123456789abcdefABCDEF:", value[0]) < 0 {
		return netip.Prefix{}, false // without the cost of an error
	}
	addr, err := netip.ParseAddr(value)
	if err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	p, err := netip.ParsePrefix(value)
	if err != nil {
		return p, false
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// clientBits is the length of the IPv6 prefix that a proxy's limit counts as one client.
const clientBits = 64

// Canonical returns the entries of a ban with each address and network in the form that netip writes.
func Canonical(entries []config.Entry) []config.Entry {
	out := slices.Clone(entries)
	for i, e := range out {
		p, isNet := network(e.Value)
		switch {
		case !isNet:
		case p.IsSingleIP():
			out[i].Value = p.Addr().String()
		default:
			out[i].Value = p.String()
		}
	}
	return out
}

// Networks returns how many values of a ban are networks of several addresses. Each multiplies the nodes that a lookup visits.
func Networks(entries []config.Entry) (n int) {
	for _, e := range entries {
		if p, isNet := network(e.Value); isNet && !p.IsSingleIP() {
			n++
		}
	}
	return n
}

// likeNetwork matches values that were probably meant as addresses: four numbers with dots, an IPv6 address, or the
// beginning of either with *. They may be in brackets, and may end in a mask or the end of a range.
var likeNetwork = regexp.MustCompile(`^\s*\[?(` +
	`\d{1,3}(\.(\d{1,3}|\*)){3}|\d{1,3}\.[\d.]*\*|[[:xdigit:]]{0,4}:[[:xdigit:]:.]*:[[:xdigit:]:.]*\*?` +
	`)\]?([/-][[:xdigit:].:-]*)?\s*$`)

// checkNetworks returns config.ErrNoDescriptor if a value of a ban looks like an address or a network but is not valid:
// as a plain word it would ban nobody. Values that the configuration itself contains are words, however they look.
func checkNetworks(c *config.Config, domain string, entries []config.Entry) error {
	for _, e := range entries {
		if _, isNet := network(e.Value); isNet || !strings.ContainsAny(e.Value, "*/-[ ") || !likeNetwork.MatchString(e.Value) {
			continue
		}
		if found, err := c.Find(domain, entries); err == nil && found.Rule != nil && slices.Contains(found.Rule.Path, e) {
			continue
		}
		return fmt.Errorf("%w: %q is no address and no network: write them such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.7, "+
			"each range as one ban or several", config.ErrNoDescriptor, e.Value)
	}
	return nil
}
