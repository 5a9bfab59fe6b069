package accesslog

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"example.com/sash/httplimit"
)

// fewPeers is up to how many peers look like proxies, if they forward for more than twice as many addresses.
const fewPeers = 16

// clients finds the client of a request that came through proxies, with the rules of httplimit.
type clients struct {
	trusting     bool
	forwardedFor *httplimit.ClientAddress
	request      http.Request

	peers, named map[string]bool // the first few, where nothing is trusted
	forwarded    int64           // records with a list
	unknown      int64           // records of which the list decides, because the peer is unknown or behind it
}

func newClients(trusted []netip.Prefix) (*clients, error) {
	c := &clients{trusting: len(trusted) > 0, peers: make(map[string]bool), named: make(map[string]bool), request: http.Request{Header: make(http.Header)}}
	if !c.trusting { // for lines without another address: all vouch
		trusted = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	}
	var err error
	c.forwardedFor, err = httplimit.NewClientAddress(&httplimit.AddressOptions{Header: "X-Forwarded-For", Trusted: trusted, TrustUnix: true})
	if err != nil {
		return nil, fmt.Errorf("trusted proxies: %w", err)
	}
	return c, nil
}

// find sets a record's client.
func (c *clients) find(r *Record) {
	if r.ForwardedFor == "" {
		return
	}
	c.forwarded++
	peer := r.RemoteAddress
	if peer == "" || r.leads {
		c.unknown++
	}
	if !c.trusting && peer != "" && !r.leads {
		if len(c.peers) <= fewPeers {
			note(c.peers, peer, fewPeers)
			note(c.named, r.ForwardedFor, 4*fewPeers)
		}
		return
	}
	if !c.trusting {
		peer = ""
	}
	if at := c.walk(peer, r.ForwardedFor); at != "" {
		r.RemoteAddress = at
	}
}

// walk returns the client behind a peer, which is "" if it is unknown and thus counts as a proxy.
func (c *clients) walk(peer, list string) string {
	c.request.RemoteAddr, c.request.Header["X-Forwarded-For"] = peer, []string{list}
	address, err := c.forwardedFor.Addr(&c.request)
	if err != nil { // a name instead of an address, or nothing usable
		return ""
	}
	return address.String()
}

func note(set map[string]bool, name string, most int) {
	if len(set) <= most && !set[name] {
		set[strings.Clone(name)] = true
	}
}

// describe completes the stats.
func (c *clients) describe(s *Stats) {
	switch {
	case s.Records == 0:
	case c.trusting:
		s.Client = "X-Forwarded-For, the last one that is no trusted proxy"
	case c.unknown > 0:
		s.Client = "X-Forwarded-For, the first one"
		s.Notes = append(s.Notes, "The client is the first of the forwarded addresses, which a client can invent: name your proxies with --trusted-proxies.")
	}
	if c.trusting && c.forwarded == 0 && s.Records > 0 {
		s.Notes = append(s.Notes, "No line has forwarded addresses, so --trusted-proxies changes nothing. If they are in a field with an unusual name, name it with forwarded_for=NAME.")
	}
	if n := len(c.peers); n > 0 && n <= fewPeers && len(c.named) > 2*n {
		peers := "one peer"
		if n > 1 {
			peers = fmt.Sprintf("%d peers", n)
		}
		s.Notes = append(s.Notes, fmt.Sprintf("%d of %d lines have forwarded addresses, and come from only %s. If these are your proxies, all their clients are charged as one here: name them with --trusted-proxies.", c.forwarded, s.Records, peers))
	}
}
