package decide

import (
	"net/netip"
	"slices"
	"time"

	"example.com/sash/service/internal/config"
)

// A banTree holds the bans of a domain, one level for each entry. A ban refuses the requests that begin with its
// entries, so that a lookup follows the request's entries down, and each node that it meets may be the end of a ban.
//
// An entry whose value is an address or a network is kept by its network, as netip.Prefix has it. For such an entry a
// lookup asks one map once for each length of prefix that there is, however many bans there are.
type banTree struct {
	by    *Exception // the ban that ends here, of several the last to end; nil is none
	words map[config.Entry]*banTree
	nets  map[string]*banNets // by the key of the entry
}

// banNets are the networks that are banned in the entries of one key.
type banNets struct {
	of map[netip.Prefix]*banTree
	// clients are the bans on part of a /64, by the /64: a proxy's limit counts that as one client.
	clients map[netip.Prefix]*banTree
	bits4   []int // the lengths of the prefixes in of
	bits6   []int
}

// insert adds a ban. With asClient it does so for requests that name addresses by their /64, and adds nothing if the
// ban names none that is longer.
func (t *banTree) insert(e *Exception, asClient bool) {
	found := false
	for _, entry := range e.Entries {
		p, isNet := network(entry.Value)
		if !isNet {
			t = child(&t.words, entry)
			continue
		}
		nets := t.nets[entry.Key]
		if nets == nil {
			if t.nets == nil {
				t.nets = make(map[string]*banNets)
			}
			nets = &banNets{}
			t.nets[entry.Key] = nets
		}
		if whole, longer := client(p); asClient && longer {
			found = true
			t = child(&nets.clients, whole)
			continue
		}
		bits := &nets.bits4
		if p.Addr().Is6() {
			bits = &nets.bits6
		}
		if !slices.Contains(*bits, p.Bits()) {
			*bits = append(*bits, p.Bits())
		}
		t = child(&nets.of, p)
	}
	if (found || !asClient) && (t.by == nil || e.Until.After(t.by.Until)) {
		t.by = e
	}
}

// child returns the subtree of a key, which it creates.
func child[K comparable](of *map[K]*banTree, key K) *banTree {
	if *of == nil {
		*of = make(map[K]*banTree)
	}
	if (*of)[key] == nil {
		(*of)[key] = &banTree{}
	}
	return (*of)[key]
}

// find returns the ban on a request with these entries that ends last, or best. Charged is the entries as a rule charges
// them. A nil tree has no bans.
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
	e, below, chargedBelow := entries[0], entries[1:], charged[1:]
	best = t.words[e].find(below, chargedBelow, now, best)
	if charged[0] != e {
		best = t.words[charged[0]].find(below, chargedBelow, now, best)
	}
	nets := t.nets[e.Key]
	if nets == nil {
		return best
	}
	p, isNet := network(e.Value)
	if !isNet {
		return best
	}
	lengths := nets.bits4
	if p.Addr().Is6() {
		lengths = nets.bits6
	}
	for _, bits := range lengths {
		if bits <= p.Bits() {
			best = nets.of[netip.PrefixFrom(p.Addr(), bits).Masked()].find(below, chargedBelow, now, best)
		}
	}
	return nets.clients[p].find(below, chargedBelow, now, best)
}
