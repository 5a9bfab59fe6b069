package httpapi

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
)

func reservation(t *testing.T, key string, opts *sash.Options, limits ...string) *decide.Reservation {
	t.Helper()
	var parsed []sash.Limit
	for _, text := range limits {
		limit, err := sash.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		limit.Name = "a name " + text
		parsed = append(parsed, limit)
	}
	policy, err := sash.NewPolicy(opts, parsed...)
	if err != nil {
		t.Fatal(err)
	}
	return &decide.Reservation{
		Domain: "shop", Key: key, Units: 7, At: time.UnixMicro(1_800_000_000_123_456), Policy: policy, Source: sash.FromLocal, Place: config.Place{Global: true, Lease: 2 * time.Second},
		ID: "0123456789abcdef0123456789abcdef", Instance: "AAAAAAAAAAAAAAAAAAAAAAAAAA",
	}
}

func TestATokenHoldsTheWholeReservation(t *testing.T) {
	sealer := newTokens([]byte("one secret of all instances"))
	opener := newTokens([]byte("one secret of all instances"))
	long := strings.Repeat("&", sash.MaxKeyLength)
	for _, r := range []*decide.Reservation{
		{},
		reservation(t, "k", nil, "10/1.5s", "300/30d"),
		reservation(t, "k", &sash.Options{Algorithm: sash.GCRA}, "10/1m30s"),
		reservation(t, "k", &sash.Options{Algorithm: sash.SlidingBuckets, Resolution: 1500 * time.Microsecond}, "1000000/2m0.000001s"),
		reservation(t, "k", nil, "10/day@America/Los_Angeles", "100/month@UTC"),
		reservation(t, long, nil, "100000/8759h59m59.999999s", "99991/8759h59m59.999998s", "99992/8759h59m59.999997s", "99993/8759h59m59.999996s", "99994/8759h59m59.999995s",
			"99999/month@America/Argentina/ComodRivadavia", "99998/day@America/Argentina/ComodRivadavia", "99997/hour@America/Argentina/ComodRivadavia"),
	} {
		token := sealer.seal(r)
		if len(token) > maxToken {
			t.Errorf("%d bytes", len(token))
		}
		got, err := opener.open(token)
		if err != nil {
			t.Fatal(err)
		}
		if (r.Policy == nil) != (got.Policy == nil) || r.Policy != nil && !r.Policy.Equal(got.Policy) {
			t.Errorf("the policy %+v became %+v", r.Policy, got.Policy)
		}
		same := *r
		same.Policy = got.Policy
		if !reflect.DeepEqual(&same, got) {
			t.Errorf("%+v became %+v", r, got)
		}
	}
}

func TestATokenThatWasChangedIsNotOpened(t *testing.T) {
	sealer := newTokens([]byte("one secret of all instances"))
	token := sealer.seal(reservation(t, "k", nil, "10/1m"))
	for i := range len(token) {
		for _, c := range []byte("AQgwB.") {
			changed := token[:i] + string(c) + token[i+1:]
			if changed == token {
				continue
			}
			if r, err := sealer.open(changed); !errors.Is(err, errToken) {
				t.Fatalf("%q: %+v, %v", changed, r, err)
			}
		}
	}
	for _, wrong := range []string{"", ".", token[:len(token)-1], token + "A", token + "\n", token[:9] + "\r\n" + token[9:], token + "." + token, newTokens().seal(&decide.Reservation{})} {
		if _, err := sealer.open(wrong); !errors.Is(err, errToken) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if a, b := newTokens(), newTokens(); string(a.keys[0]) == string(b.keys[0]) || len(a.keys[0]) != 32 {
		t.Error("without a key each handler has one of its own")
	}
}
