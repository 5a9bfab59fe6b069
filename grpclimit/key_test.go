package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

func from(addr net.Addr) context.Context {
	return peer.NewContext(context.Background(), &peer.Peer{Addr: addr})
}

func tcp(addrPort string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addrPort)) }

// A textAddr is an address in the form of servers behind net/http.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func carrying(pairs ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...))
}

func TestKeys(t *testing.T) {
	hmacKey := []byte("a key of the application")
	type ctxKey struct{}
	user := grpclimit.User(func(ctx context.Context) (string, bool) { u, ok := ctx.Value(ctxKey{}).(string); return u, ok })
	xAPIKey := apiKey(t, "X-API-Key", hmacKey)
	bearer := apiKey(t, "Authorization", hmacKey)
	hashed := "apikey:" + sash.Secret(hmacKey, "k-1")

	for _, c := range []struct {
		name string
		key  grpclimit.KeyFunc
		ctx  context.Context
		want string // empty is ErrNoKey; "bad" is ErrBadKey
	}{
		{"IPv4", grpclimit.PeerAddress, from(tcp("203.0.113.9:4711")), "addr:203.0.113.9"},
		{"IPv4 in IPv6", grpclimit.PeerAddress, from(tcp("[::ffff:203.0.113.9]:4711")), "addr:203.0.113.9"},
		{"IPv6 by its /64", grpclimit.PeerAddress, from(tcp("[2001:db8:1:2:3:4:5:6]:4711")), sash.Key("addr", "2001:db8:1:2::/64")},
		{"IPv6 without its zone", grpclimit.PeerAddress, from(tcp("[fe80::1%eth0]:4711")), sash.Key("addr", "fe80::/64")},
		{"IPv4 in IPv6, as text", grpclimit.PeerAddress, from(textAddr("[::ffff:203.0.113.9]:4711")), "addr:203.0.113.9"},
		{"a Unix socket", grpclimit.PeerAddress, from(&net.UnixAddr{Net: "unix", Name: "@"}), ""},
		{"no peer", grpclimit.PeerAddress, context.Background(), ""},

		{"metadata", grpclimit.Metadata("Tenant"), carrying("tenant", "t1"), "metadata:tenant:t1"},
		{"metadata twice", grpclimit.Metadata("tenant"), carrying("tenant", "t1", "tenant", "t2"), "bad"},

		{"an API key, hashed", xAPIKey, carrying("x-api-key", "k-1"), hashed},
		{"a bearer token, hashed", bearer, carrying("authorization", "bearer k-1"), hashed},
		{"a binary API key", apiKey(t, "key-bin", hmacKey), carrying("key-bin", "\x00,\xff"), "apikey:" + sash.Secret(hmacKey, "\x00,\xff")},

		{"a user", user, context.WithValue(context.Background(), ctxKey{}, "ann"), "user:ann"},
		{"the method", grpclimit.Method, context.Background(), "method:/s/m"},
		{"all together", grpclimit.Shared("total"), context.Background(), "shared:total"},

		{"joined", grpclimit.Join(xAPIKey, grpclimit.Method), carrying("x-api-key", "k-1"), hashed + ":method:/s/m"},
		{"the first of two", grpclimit.FirstOf(xAPIKey, grpclimit.PeerAddress), carrying("x-api-key", "k-1"), hashed},
		{"the second of two", grpclimit.FirstOf(xAPIKey, grpclimit.PeerAddress), from(tcp("203.0.113.9:4711")), "addr:203.0.113.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.key(grpclimit.Call{Context: c.ctx, FullMethod: "/s/m"})
			if c.want == "bad" && errors.Is(err, grpclimit.ErrBadKey) {
				return
			}
			if got != c.want || errors.Is(err, grpclimit.ErrNoKey) != (c.want == "") {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func apiKey(t *testing.T, name string, hmacKey []byte) grpclimit.KeyFunc {
	t.Helper()
	return must(grpclimit.APIKey(name, hmacKey))(t)
}

func TestCallsThatCannotBeCharged(t *testing.T) {
	for _, c := range []struct {
		name     string
		key      string
		err      error
		cost     int64
		want     codes.Code
		reported bool
	}{
		{"exempt", "", grpclimit.ErrExempt, 1, codes.OK, false},
		{"no key", "", grpclimit.ErrNoKey, 1, codes.InvalidArgument, false},
		{"a bad key", "", grpclimit.ErrBadKey, 1, codes.InvalidArgument, false},
		{"a status of its own", "", status.Error(codes.Unauthenticated, "who are you?"), 1, codes.Unauthenticated, false},
		{"another error", "", errors.New("the database of users is down"), 1, codes.Internal, true},
		{"an empty key", "", nil, 1, codes.Internal, true},
		{"a cost that fits", "ann", nil, 5, codes.OK, false},
		{"a cost above the limit", "ann", nil, 6, codes.InvalidArgument, false},
		{"a negative cost", "ann", nil, -1, codes.Internal, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			reported := make(chan error, 1)
			key := func(grpclimit.Call) (string, error) { return c.key, c.err }
			client := dial(t, &service{}, limited(onServer(t, newLimiter(t, newClock().store(), sash.PerMinute(5)), key, &grpclimit.ServerOptions{
				OnError: func(_ grpclimit.Call, err error) { reported <- err },
				Cost:    func(grpclimit.Call) int64 { return c.cost },
			})))
			err := call(t.Context(), client)
			wantCode(t, err, c.want)
			if err != nil && strings.Contains(err.Error(), "database") {
				t.Errorf("the status says too much: %v", err)
			}
			if (len(reported) == 1) != c.reported {
				t.Errorf("OnError was called %d times", len(reported))
			}
		})
	}
}
