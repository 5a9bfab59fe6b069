package grpclimit

import (
	"context"
	"fmt"
	"net/netip"

	"google.golang.org/grpc/peer"

	"example.com/sash"
)

// DefaultIPv6Bits is the part of an IPv6 address that counts as one client: what one customer of a
// provider usually has to choose addresses from.
const DefaultIPv6Bits = 64

// PeerAddress is a [KeyFunc] for servers: the address at the other end of the connection, by its /64 for
// IPv6, without a zone, and as IPv4 if it is one. It reads no metadata. Behind a proxy all calls would
// have the proxy's address. A peer without an address, as on a Unix socket, has no key.
func PeerAddress(ctx context.Context, _ Call) (string, error) { return peerKey(ctx, DefaultIPv6Bits) }

// PeerPrefix is [PeerAddress] with another part of an IPv6 address: 1 to 128 bits. Other numbers are an
// error on every call.
func PeerPrefix(ipv6Bits int) KeyFunc {
	return func(ctx context.Context, _ Call) (string, error) { return peerKey(ctx, ipv6Bits) }
}

func peerKey(ctx context.Context, ipv6Bits int) (string, error) {
	if ipv6Bits < 1 || ipv6Bits > 128 {
		return "", fmt.Errorf("grpclimit: PeerPrefix takes 1 to 128 bits, not %d", ipv6Bits)
	}
	addr, err := peerAddr(ctx)
	if err != nil {
		return "", err
	}
	if addr.Is4() || ipv6Bits == 128 {
		return sash.Key("addr", addr.String()), nil
	}
	return sash.Key("addr", netip.PrefixFrom(addr, ipv6Bits).Masked().String()), nil
}

func peerAddr(ctx context.Context) (netip.Addr, error) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}, fmt.Errorf("%w: the call has no peer", ErrNoKey)
	}
	withPort, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%w: the peer %q has no address", ErrNoKey, p.Addr)
	}
	return withPort.Addr().WithZone("").Unmap(), nil
}
