package grpclimit_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"example.com/sash"
	"example.com/sash/grpclimit"
)

// A caller who has used up its limit sends the same credential in other spellings, each time from another
// address. Whatever the spelling, the caller is refused or charged: the function behind FirstOf, which would
// charge the address, does not get the call.
func TestNoSpellingOfAKeyEscapesItsLimit(t *testing.T) {
	hmacKey := []byte("a key of the application")
	for _, c := range []struct {
		name   string
		key    grpclimit.KeyFunc
		field  string
		plain  string
		others map[string][]string // values of the field, which carry the same credential
	}{
		{"metadata", grpclimit.Metadata("tenant"), "tenant", "t1", map[string][]string{
			"twice": {"t1", "t1"}, "two": {"t2", "t1"}, "blank before": {"", "t1"}, "blank after": {"t1", " "}, "padded": {" t1 "},
		}},
		{"a binary API key", apiKey(t, "key-bin", hmacKey), "key-bin", "\x00k,", map[string][]string{"twice": {"\x00k,", "\x00k,"}}},
		{"an API key", apiKey(t, "X-API-Key", hmacKey), "x-api-key", "k1", map[string][]string{
			"twice": {"k1", "k1"}, "two": {"k2", "k1"}, "blank before": {"", "k1"}, "blank after": {"k1", ""}, "padded": {" k1 "},
			"joined": {"k1, k1"}, "joined with another": {"k2,k1"}, "NUL": {"k1\x00"}, "no-break space": {"k1\u00a0"}, "no text": {"k1\xff"},
		}},
		{"a bearer token", apiKey(t, "authorization", hmacKey), "authorization", "Bearer k1", map[string][]string{
			"twice": {"Bearer k1", "Bearer k1"}, "another scheme first": {"Basic eDp5", "Bearer k1"}, "case": {"bEARER k1"},
			"tab": {"Bearer\tk1"}, "two words": {"Bearer k1 x"}, "joined": {"Bearer k1, Bearer k1"},
			"joined with another scheme": {"Basic eDp5, Bearer k1"}, "no scheme": {"k1"}, "a scheme alone": {"Bearer"},
		}},
	} {
		for name, values := range c.others {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				limit := onServer(t, newLimiter(t, newClock().store(), sash.PerMinute(3)), grpclimit.FirstOf(c.key, grpclimit.PeerAddress), nil)
				admitted, sent := 0, 0
				send := func(values []string) {
					sent++
					ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: tcp(fmt.Sprintf("198.51.100.%d:1", sent))})
					ctx = metadata.NewIncomingContext(ctx, metadata.MD{c.field: values})
					_, err := limit.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/m"}, func(context.Context, any) (any, error) {
						admitted++
						return nil, nil
					})
					if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument && code != codes.ResourceExhausted {
						t.Error(err)
					}
				}
				for range 3 {
					send([]string{c.plain})
				}
				for range 5 {
					send(values)
				}
				if admitted != 3 {
					t.Errorf("%d admitted, want 3", admitted)
				}
			})
		}
	}
}
