package decide

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.com/sash/service/internal/config"
)

// network returns what a value means if it is an address or a network: an address is a network of one, and IPv4 within
// IPv6 is IPv4.
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

// clientBits is the part of an IPv6 address that a proxy's limit counts as one client.
const clientBits = 64

// client returns the client that an IPv6 network longer than one belongs to.
func client(p netip.Prefix) (netip.Prefix, bool) {
	if !p.Addr().Is6() || p.Bits() <= clientBits {
		return p, false
	}
	return netip.PrefixFrom(p.Addr(), clientBits).Masked(), true
}

// Canonical returns the entries of a ban with each address and network in one form: an address without a zone, IPv4
// within IPv6 as IPv4, and a network without the bits of a host.
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

// Networks returns how many of the values of a ban are networks of more than one address. Each level that has some
// multiplies what a lookup visits.
func Networks(entries []config.Entry) (n int) {
	for _, e := range entries {
		if p, isNet := network(e.Value); isNet && !p.IsSingleIP() {
			n++
		}
	}
	return n
}

// checkNetworks returns config.ErrNoDescriptor if a value of a ban looks like addresses and is none: it would be a word,
// which no address is. A value that the configuration has as it stands is a word.
func checkNetworks(cfg *config.Config, domain string, entries []config.Entry) error {
	for _, e := range entries {
		if !resembles(e.Value) {
			continue
		}
		if found, err := cfg.Find(domain, entries); err == nil && found.Rule != nil && slices.Contains(found.Rule.Path, e) {
			continue
		}
		return fmt.Errorf("%w: %q is no address and no network: write them such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.7, "+
			"each range as one ban or several", config.ErrNoDescriptor, e.Value)
	}
	return nil
}

// resembles reports whether a value that is neither an address nor a network was meant as one: with a mask, a wildcard,
// brackets or spaces, or as a range.
func resembles(value string) bool {
	if _, isNet := network(value); isNet {
		return false
	}
	isAddr := func(text string) bool {
		_, err := netip.ParseAddr(text)
		return err == nil
	}
	if trimmed := strings.TrimSpace(value); trimmed != value {
		_, isNet := network(trimmed)
		return isNet
	}
	addr, mask, masked := strings.Cut(value, "/")
	if inner, opened := strings.CutPrefix(addr, "["); opened {
		inner, closed := strings.CutSuffix(inner, "]")
		return closed && isAddr(inner)
	}
	if masked && isAddr(addr) {
		_, err := strconv.Atoi(mask)
		return mask == "" || err == nil || isAddr(mask)
	}
	if from, to, ranged := strings.Cut(value, "-"); ranged {
		return isAddr(from) && isAddr(to)
	}
	rest, wild := strings.CutSuffix(value, "*")
	if !wild {
		return false
	}
	begin := strings.TrimRight(rest, ".:*")
	return isAddr(begin+strings.Repeat(".0", max(0, 3-strings.Count(begin, ".")))) || strings.Count(rest, ":") > 1 && isAddr(begin+"::")
}
