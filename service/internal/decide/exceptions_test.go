package decide

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

const excepted = `
domain: d
descriptors:
- {key: user, limits: [3/1h], refund_within: 1m}
- {key: fixed, limits: [3/1h], algorithm: fixed-window}
- {key: tried, limits: [1/1h], shadow_mode: true}
- {key: free, rate_limit: {unlimited: true}}
- {key: never, rate_limit: {unit: minute, requests_per_unit: 0}}
- {key: heavy, limits: [9/1h], cost: 5}
- {key: file, value: "pub/*", limits: [3/1h], share_threshold: true}
- {key: small, rate_limit: {unit: minute, requests_per_unit: 1, name: small}}
- {key: large, rate_limit: {unit: minute, requests_per_unit: 100, replaces: [{name: small}]}}
`

// live is a decider on the process's clock, which synctest moves.
func live(t *testing.T, text string) *Decider {
	t.Helper()
	return deciderOn(t, text, memstore.New(nil))
}

func limitsFrom(t *testing.T, texts ...string) (out []sash.Limit) {
	t.Helper()
	for _, text := range texts {
		out = append(out, must(sash.ParseLimit(text))(t))
	}
	return out
}

func exception(entries string, life time.Duration, of ...sash.Limit) Exception {
	return Exception{Domain: "d", Entries: part(entries, 1).Entries, Limits: of, Until: time.Now().Add(life)}
}

func decideOne(t *testing.T, d *Decider, entries string) Answer {
	t.Helper()
	return must(one(t.Context(), d, One("d", part(entries, 1).Entries, nil)))(t)
}

// A banned subject is refused by both ways of asking, is not charged, and is free again when the ban ends.
func TestABannedSubjectIsRefusedUntilTheBanEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := live(t, excepted)
		want(t, "before", ask(t, d, part("user=eve", 1)), "ok:2")
		d.Except([]Exception{exception("user=eve", time.Minute), exception("stranger=eve", time.Minute)})
		v := decideOne(t, d, "user=eve")
		if v.Allowed() || v.RefusedBy.Limit.Name != "ban" || v.RefusedBy.RetryAfter != time.Minute {
			t.Errorf("it is answered %+v", v)
		}
		if v := decideOne(t, d, "stranger=eve"); v.Allowed() {
			t.Error("entries that no rule matches are let through although they are banned")
		}
		want(t, "banned", ask(t, d, part("user=eve", 1), part("user=ann", 1)), "OVER:0 | ok:3")
		want(t, "a limit of the request's own does not lift it", ask(t, d, Part{
			Entries: part("user=eve", 1).Entries, Cost: 1, RequestLimit: &sash.Limit{Units: 9, Window: time.Hour},
		}), "OVER:0")
		refund := part("user=eve", 1)
		refund.Refund = true
		want(t, "a refund is given back", ask(t, d, refund), "ok:3")
		<-time.After(time.Minute) // in a bubble: the clock moves without waiting
		want(t, "over", ask(t, d, part("user=eve", 1)), "ok:2")
		if v := decideOne(t, d, "user=eve"); !v.Allowed() || remaining(v) != 1 {
			t.Errorf("after the ban: %+v", v)
		}
	})
}

// A ban binds where a limit does not: under shadow_mode, unlimited, and where another rule replaces this one.
func TestABanAlwaysBinds(t *testing.T) {
	d := live(t, excepted)
	var all []Exception
	for _, entries := range []string{"tried=a", "free=a", "never=a", "small"} {
		all = append(all, exception(entries, time.Hour))
	}
	d.Except(all)
	for _, entries := range []string{"tried=a", "free=a", "never=a"} {
		if v := decideOne(t, d, entries); v.Allowed() {
			t.Errorf("%s is let through: %+v", entries, v)
		}
		answers, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part(entries, 1)}, Lenient: true})
		if err != nil || answers[0].BannedBy == nil || answers[0].Soft() {
			t.Errorf("%s: %+v, %v", entries, answers, err)
		}
	}
	want(t, "replaced", ask(t, d, part("small", 1), part("large", 1)), "OVER:0 | ok:100")
}

func TestExceptionsAreChecked(t *testing.T) {
	d := live(t, excepted)
	for name, c := range map[string]struct {
		e    Exception
		fail error
	}{
		"a ban":                {exception("user=a", time.Hour), nil},
		"a ban without a rule": {exception("file=priv/a", time.Hour), nil},
		"a ban of no key":      {exception("stranger=a", time.Hour), config.ErrNoDescriptor},
		"another domain":       {Exception{Domain: "e", Entries: part("user=a", 1).Entries}, config.ErrUnknownDomain},
		"an override":          {exception("user=a", time.Hour, limitsFrom(t, "1/1m")...), nil},
		"without a rule":       {exception("stranger=a", time.Hour, limitsFrom(t, "1/1m")...), ErrNotLimited},
		"below the cost":       {exception("heavy=a", time.Hour, limitsFrom(t, "4/1m")...), sash.ErrInvalidLimit},
		"many units":           {exception("user=a", time.Hour, limitsFrom(t, "1000000/1m")...), nil},
		"two of one window":    {exception("user=a", time.Hour, limitsFrom(t, "1/1m", "2/1m")...), sash.ErrInvalidLimit},
	} {
		if err := d.CheckException(c.e); !errors.Is(err, c.fail) || (err == nil) != (c.fail == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.fail)
		}
	}
}

// Exceptions outlive a new configuration. An override that does not fit any more leaves the subject to its rule.
func TestExceptionsAndANewConfiguration(t *testing.T) {
	d := live(t, excepted)
	d.Except([]Exception{exception("user=eve", time.Hour), exception("user=ann", time.Hour, limitsFrom(t, "5/1m")...)})
	use(t, d, "domain: d\ndescriptors:\n- {key: user, limits: [2/1h], cost: 1}\n")
	want(t, "as before", ask(t, d, part("user=ann", 1)), "ok:4")
	use(t, d, "domain: d\ndescriptors:\n- {key: user, limits: [9/1h], cost: 6}\n")
	want(t, "the override no longer fits", ask(t, d, part("user=ann", 1)), "ok:7")
	want(t, "the ban stays", ask(t, d, part("user=eve", 1)), "OVER:0")
}

func TestResetAndLook(t *testing.T) {
	d := live(t, excepted)
	ann := part("user=ann", 1).Entries
	ask(t, d, part("user=ann", 3), part("user=bob", 3))
	state, err := d.State(t.Context(), "d", ann)
	if err != nil || remaining(state.Answer) != 0 || state.Found.Rule == nil || state.Ban != nil {
		t.Errorf("%+v, %v", state, err)
	}
	check(t, d.Reset(t.Context(), "d", ann))
	d.Except([]Exception{exception("user=ann", time.Hour)})
	if state, err = d.State(t.Context(), "d", ann); err != nil || remaining(state.Answer) != 3 || state.Ban == nil {
		t.Errorf("after the reset: %+v, %v", state, err)
	}
	want(t, "another subject", ask(t, d, part("user=bob", 1)), "OVER:0")
	for _, entries := range []string{"stranger=a", "never=a"} {
		if err := d.Reset(t.Context(), "d", part(entries, 1).Entries); !errors.Is(err, ErrNotLimited) {
			t.Errorf("%s: %v", entries, err)
		}
	}
	if err := d.Reset(t.Context(), "e", ann); !errors.Is(err, config.ErrUnknownDomain) {
		t.Errorf("another domain: %v", err)
	}
	if state, err := d.State(t.Context(), "d", part("free=a", 1).Entries); err != nil || len(state.Limits) > 0 || state.Found.Rule == nil {
		t.Errorf("unlimited: %+v, %v", state, err)
	}
}

const banRules = `
domain: d
descriptors:
- {key: addr, limits: [9/1h], descriptors: [{key: path, limits: [9/1h]}]}
- {key: user, limits: [9/1h], descriptors: [{key: path, limits: [9/1h], descriptors: [{key: addr, limits: [9/1h]}]}]}
- {key: file, value: "pub/*", limits: [9/1h], share_threshold: true, descriptors: [{key: path, limits: [9/1h]}]}
- {key: each, value: "pub/*", limits: [9/1h]}
`

// A ban refuses the requests that begin with its entries, in their order and of its domain.
func TestABanRefusesWhatBeginsWithItsEntries(t *testing.T) {
	for _, c := range []struct {
		ban, request string
		banned       bool
	}{
		{"user=a", "user=a", true},
		{"user=a", "user=a path=/x", true},
		{"user=a", "user=a path=/x addr=192.0.2.7", true},
		{"user=a", "user=a whatever=b", true},
		{"user=a", "user=ab path=/x", false},
		{"user=a path=/x", "user=a", false},
		{"user=a path=/x", "user=a path=/y", false},
		{"user=a path=/x", "user=a path=/x addr=192.0.2.7", true},
		{"path=/x", "user=a path=/x", false},
		{"user=a path=/x addr=192.0.2.0/24", "user=a path=/x addr=192.0.2.7", true},
		{"user=a path=/x addr=192.0.2.0/24", "user=a path=/y addr=192.0.2.7", false},
		{"addr=192.0.2.0/24 path=/x", "addr=192.0.2.7 path=/x", true},
		{"addr=192.0.2.0/24 path=/x", "addr=192.0.2.7 path=/y", false},
		{"addr=192.0.2.0/24", "user=192.0.2.7", false},
		{"file=pub/*", "file=pub/a path=/x", true},
		{"file=pub/*", "file=pub/a whatever=b", true},
		{"file=pub/a", "file=pub/b", false},
	} {
		d := live(t, banRules)
		d.Except([]Exception{{Domain: "d", Entries: part(c.ban, 1).Entries, Until: time.Now().Add(time.Hour)}})
		if a := decideOne(t, d, c.request); (a.BannedBy != nil) != c.banned {
			t.Errorf("%s is banned: %s is banned by %+v", c.ban, c.request, a.BannedBy)
		}
		if state, err := d.State(t.Context(), "d", part(c.request, 1).Entries); err != nil || (state.Ban != nil) != c.banned {
			t.Errorf("%s is banned: the state of %s is %+v, %v", c.ban, c.request, state.Ban, err)
		}
	}
}

// Bans on random networks match exactly the addresses and networks that netip says they contain, and the /64 of IPv6
// addresses, which is the client that a proxy's limit counts.
func TestBannedNetworksAreThoseOfNetip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	hits := 0
	for range 100 {
		d := live(t, banRules)
		var all []Exception
		var banned []netip.Prefix
		for range 1 + random.IntN(8) {
			p := randomNetwork(random, random.IntN(3) == 0)
			all = append(all, Exception{Domain: "d", Entries: []config.Entry{{Key: "addr", Value: written(random, p)}}, Until: time.Now().Add(time.Hour)})
			banned = append(banned, p)
		}
		d.Except(all)
		for range 40 {
			asked := randomNetwork(random, random.IntN(3) > 0)
			want := false
			for _, p := range banned {
				inside := p.Bits() <= asked.Bits() && p.Masked().Contains(asked.Addr())
				client := asked.Addr().Is6() && asked.Bits() == 64 && p.Bits() > 64 && asked.Masked().Contains(p.Addr())
				want = want || inside || client
			}
			text := written(random, asked)
			a := decideOne(t, d, "addr="+text)
			if (a.BannedBy != nil) != want {
				t.Fatalf("seed %d: %s under %v: banned by %+v, want %v", seed, text, banned, a.BannedBy, want)
			}
			if want {
				hits++
			}
		}
	}
	if hits < 300 {
		t.Errorf("seed %d: only %d of 4,000 requests were banned: the test shows little", seed, hits)
	}
}

// randomNetwork returns a network, or a single address, from a space so small that they often overlap.
func randomNetwork(random *rand.Rand, single bool) netip.Prefix {
	if random.IntN(2) == 0 {
		a := netip.AddrFrom4([4]byte{192, 0, byte(random.IntN(3)), byte(random.IntN(256))})
		bits := 32
		if !single {
			bits = 12 + random.IntN(21)
		}
		return netip.PrefixFrom(a, bits)
	}
	raw := [16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, byte(random.IntN(3))}
	raw[8], raw[15] = byte(random.IntN(2)<<7), byte(random.IntN(4))
	bits := 128
	if !single {
		bits = []int{32, 48, 56, 63, 64, 64, 65, 96, 127}[random.IntN(9)]
	}
	return netip.PrefixFrom(netip.AddrFrom16(raw), bits)
}

// written writes a network in one of the ways that mean it.
func written(random *rand.Rand, p netip.Prefix) string {
	addr, bits := p.Addr(), p.Bits()
	if addr.Is4() && random.IntN(3) == 0 {
		addr, bits = netip.AddrFrom16(addr.As16()), bits+96
	}
	text := addr.String()
	if random.IntN(3) == 0 {
		text = addr.StringExpanded()
	}
	if bits < addr.BitLen() || random.IntN(4) == 0 {
		text += "/" + strconv.Itoa(bits)
	}
	return text
}

// A value that looks like a network but is not valid would ban only that text, and claim to be in effect.
func TestABanOfWhatLooksLikeANetworkIsRejected(t *testing.T) {
	d := live(t, banRules+"- {key: addr, value: \"198.51.100.*\", limits: [9/1h], share_threshold: true}\n")
	for _, value := range []string{
		"192.0.2.0/33", "192.0.2.0/024", "192.0.2.0/255.255.255.0", "192.0.2.0/", "192.0.2.0/-1", "2001:db8::/129", "[2001:db8::]/32", "::ffff:192.0.2.0/ffff::",
		"192.0.2.*", "192.0.*.*", "192.*", "2001:db8:*", "2001:db8::*", "[2001:db8::1]", "[192.0.2.7]", "192.0.2.1-192.0.2.9", " 192.0.2.7", "192.0.2.0/24 ",
	} {
		err := d.CheckException(Exception{Domain: "d", Entries: []config.Entry{{Key: "addr", Value: value}}})
		if !errors.Is(err, config.ErrNoDescriptor) || !strings.Contains(err.Error(), "such as 192.0.2.0/24") {
			t.Errorf("%q: %v", value, err)
		}
	}
	for _, value := range []string{
		"192.0.2.7", "192.0.2.7/24", "2001:db8::1", "::/0", "192.0.2.7:80", "[2001:db8::1]:80", "1.2", "1.2.3/x", "192.0.2.7/index", "*", "a.*", "ab:*", "10-12", "", "/",
		"198.51.100.*", // which the configuration has
	} {
		if err := d.CheckException(Exception{Domain: "d", Entries: []config.Entry{{Key: "addr", Value: value}}}); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
