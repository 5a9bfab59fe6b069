package decide

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash/service/internal/config"
)

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
	for range 300 {
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
	if hits < 1000 {
		t.Errorf("seed %d: only %d of 12,000 requests were banned: the test shows little", seed, hits)
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

// Without the configuration's help nobody sees that a ban matches nothing: its error names the keys that there are.
func TestABanThatNothingCanMatchIsRejected(t *testing.T) {
	d := live(t, banRules)
	for entries, say := range map[string]string{
		"usr=a":          `no descriptor here has the key "usr"; the keys are: addr, each, file, user`,
		"path=/x":        `no descriptor here has the key "path"; the keys are: `,
		"user=a role=b":  `no descriptor here has the key "role"; the keys are: path`,
		"user=a path=/x": "",
		"user=stranger":  "",
		"each=pub/a":     "",
	} {
		err := d.CheckException(Exception{Domain: "d", Entries: part(entries, 1).Entries})
		if (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q", entries, err, say)
		}
	}
}

// A value that looks like a network and is none would match that text alone, and say that it is in effect.
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
