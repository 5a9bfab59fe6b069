package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Network returns what a value means if it is an address or a network: an address is a network of one, and IPv4 within
// IPv6 is IPv4.
func Network(value string) (netip.Prefix, bool) {
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

// ClientBits is the part of an IPv6 address that a proxy's limit counts as one client.
const ClientBits = 64

// Canonical returns the entries of a ban with each address and network in one form: an address without a zone, IPv4
// within IPv6 as IPv4, and a network without the bits of a host.
func Canonical(entries []Entry) []Entry {
	out := slices.Clone(entries)
	for i, e := range out {
		p, isNet := Network(e.Value)
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
func Networks(entries []Entry) (n int) {
	for _, e := range entries {
		if p, isNet := Network(e.Value); isNet && !p.IsSingleIP() {
			n++
		}
	}
	return n
}

// likeNetwork is what a value looks like that was meant as addresses: four numbers with dots, or an IPv6 address, or the
// beginning of one with *, in brackets or not, and perhaps a mask or the end of a range.
var likeNetwork = regexp.MustCompile(`^\s*\[?(` +
	`\d{1,3}(\.(\d{1,3}|\*)){3}|\d{1,3}\.[\d.]*\*|[[:xdigit:]]{0,4}:[[:xdigit:]:.]*:[[:xdigit:]:.]*\*?` +
	`)\]?([/-][[:xdigit:].:-]*)?\s*$`)

// CheckNetworks returns ErrNoDescriptor if a value of a ban looks like addresses and is none: it would be a word,
// which no address is. A value that the configuration has as it stands is a word.
func (c *Config) CheckNetworks(domain string, entries []Entry) error {
	for _, e := range entries {
		if _, isNet := Network(e.Value); isNet || !strings.ContainsAny(e.Value, "*/-[ ") || !likeNetwork.MatchString(e.Value) {
			continue
		}
		if found, err := c.Find(domain, entries); err == nil && found.Rule != nil && slices.Contains(found.Rule.Path, e) {
			continue
		}
		return fmt.Errorf("%w: %q is no address and no network: write them such as 192.0.2.0/24, 2001:db8::/32 or 192.0.2.7, "+
			"each range as one ban or several", ErrNoDescriptor, e.Value)
	}
	return nil
}
