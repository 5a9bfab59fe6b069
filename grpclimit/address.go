package grpclimit

import (
	"context"
	"fmt"
	"net/netip"

	"google.golang.org/grpc/peer"

	"example.com/sash/middleware"
)

// DefaultIPv6Bits is the part of an IPv6 address that counts as one client: the network that a provider
// usually gives to one customer.
const DefaultIPv6Bits = middleware.DefaultIPv6Bits

// PeerAddress is a [KeyFunc] for servers: the address at the other end of the connection, by its /64 for
// IPv6, without a zone, and as IPv4 if it is one. It reads no metadata. Behind a proxy all calls have the
// proxy's address. A peer without an address, as on a Unix socket, has no key.
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
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return "", fmt.Errorf("%w: the call has no peer", ErrNoKey)
	}
	withPort, err := netip.ParseAddrPort(p.Addr.String())
	if err != nil {
		return "", fmt.Errorf("%w: the peer %q has no address", ErrNoKey, p.Addr)
	}
	return middleware.AddressKey(withPort.Addr().WithZone("").Unmap(), ipv6Bits), nil
}
