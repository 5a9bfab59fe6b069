package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/failover"
	"example.com/sash/memstore"
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
	sealer := NewTokens([]byte("one secret of all instances"))
	opener := NewTokens([]byte("one secret of all instances"))
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
		token := sealer.Seal(*r)
		parts := sealer.Seal(slices.Repeat([]decide.Reservation{*r}, sash.MaxSubjects)...)
		if held, err := opener.Open(parts); len(parts) > MaxToken || len(held) != sash.MaxSubjects || !reflect.DeepEqual(held[3], held[0]) {
			t.Errorf("%d bytes, %+v, %v", len(parts), held, err)
		}
		all, err := opener.Open(token)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		got := &all[0]
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
	sealer := NewTokens([]byte("one secret of all instances"))
	token := sealer.Seal(*reservation(t, "k", nil, "10/1m"))
	for i := range len(token) {
		for _, c := range []byte("AQgwB.") {
			changed := token[:i] + string(c) + token[i+1:]
			if changed == token {
				continue
			}
			if r, err := sealer.Open(changed); !errors.Is(err, ErrToken) {
				t.Fatalf("%q: %+v, %v", changed, r, err)
			}
		}
	}
	for _, wrong := range []string{"", ".", token[:len(token)-1], token + "A", token + "\n", token[:9] + "\r\n" + token[9:], token + "." + token, NewTokens().Seal(decide.Reservation{})} {
		if _, err := sealer.Open(wrong); !errors.Is(err, ErrToken) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	// A fleet changes its key in three rounds: the first key of an instance seals, and all of them open.
	for _, seals := range []string{"old", "old,new", "new,old", "new"} {
		for _, opens := range []string{"old", "old,new", "new,old", "new"} {
			one, another := NewTokens(bytes.Split([]byte(seals), []byte(","))...), NewTokens(bytes.Split([]byte(opens), []byte(","))...)
			if _, err := another.Open(one.Seal(decide.Reservation{})); (err == nil) != strings.Contains(opens, seals[:3]) {
				t.Errorf("one with %s seals, and one with %s opens: %v", seals, opens, err)
			}
		}
	}
	if a, b := NewTokens(), NewTokens(); string(a.keys[0]) == string(b.keys[0]) || len(a.keys[0]) != 32 {
		t.Error("without a key each handler has one of its own")
	}
}

// What is not settled has its error before the engine is asked, and a caller without the right learns nothing of the token.
func TestWhatIsNotSettled(t *testing.T) {
	tokens, denied := NewTokens(), errors.New("denied")
	r := reservation(t, "k", nil, "10/1m")
	for name, c := range map[string]struct {
		token  string
		after  time.Duration
		permit error
		domain string
		want   error
	}{
		"expired":           {tokens.Seal(*r), 3 * time.Minute, nil, "shop", ErrExpired},
		"changed":           {"x", 0, nil, "", ErrToken},
		"without a right":   {tokens.Seal(*r), 0, denied, "shop", denied},
		"changed, and both": {"x", 0, denied, "", denied},
	} {
		tokens.Now = func() time.Time { return r.At.Add(c.after) }
		err := tokens.Settle(t.Context(), nil, c.token, []int64{1}, func(domain string) error {
			if domain != c.domain {
				t.Errorf("%s: the right is for %q, want %q", name, domain, c.domain)
			}
			return c.permit
		})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A token that was not sealed here is never opened.
func FuzzTokens(f *testing.F) {
	ours, others := NewTokens(), NewTokens()
	f.Add("", "a.b")
	f.Add(`{"k":"k","u":1,"l":["1/1m"]}`, ".")
	f.Add(`{"k":"k","u":9223372036854775807,"t":-1,"l":["1/month@UTC"],"a":"gcra","r":-1,"s":255}`, "AA.AA")
	f.Fuzz(func(t *testing.T, payload, token string) {
		if r, err := ours.Open(token); err == nil {
			t.Errorf("%q: %+v", token, r)
		}
		seal := func(of *Tokens) string {
			return encoding.EncodeToString([]byte(payload)) + "." + encoding.EncodeToString(mac(of.keys[0], []byte(payload)))
		}
		if r, err := ours.Open(seal(others)); err == nil {
			t.Errorf("sealed by another: %+v", r)
		}
		r, err := ours.Open(seal(ours)) // of another version, say: it may be wrong, and is no fault
		for i := range r {
			if err == nil && r[i].Units > 0 {
				r[i].Expires()
			}
		}
	})
}

func TestSecondsAreExactDecimals(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0": 0, "60": time.Minute, "0.5": 500 * time.Millisecond, "0.000001": time.Microsecond, "12.034": 12034 * time.Millisecond,
		"34559999.999999": 400*24*time.Hour - time.Microsecond,
	} {
		b, err := json.Marshal(Seconds(d))
		if err != nil || string(b) != want {
			t.Errorf("%v is %s, want %s (%v)", d, b, want, err)
		}
		var back Seconds
		if err := json.Unmarshal(b, &back); err != nil || time.Duration(back) != d {
			t.Errorf("%s is read as %v (%v)", b, time.Duration(back), err)
		}
	}
}

// Encoders of JSON write small and large numbers with an exponent.
func TestSecondsAreReadInEveryForm(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5e-05": 50 * time.Microsecond, "1E-7": 100 * time.Nanosecond, "1e1": 10 * time.Second, "1.5e+2": 150 * time.Second, "-1e-9": -1, "null": 0,
	} {
		var s Seconds
		if err := json.Unmarshal([]byte(text), &s); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %v, want %v (%v)", text, time.Duration(s), want, err)
		}
	}
	for _, text := range []string{"1e400", "1e300", "-1e300", "99999999999999999999", `"5"`, `"1e1"`, "true", "[]", "{}"} {
		var s Seconds
		if err := json.Unmarshal([]byte(text), &s); err == nil {
			t.Errorf("%s is %v", text, time.Duration(s))
		}
	}
}

func TestRetryAfterIsNeverEarly(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, time.Microsecond: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90} {
		if got := Seconds(d).RoundUp(); got != want {
			t.Errorf("%v is %d s, want %d", d, got, want)
		}
	}
}

func TestInstantKeepsMicroseconds(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 1000, time.FixedZone("", 3600))
	b, err := json.Marshal(Instant(at))
	if err != nil || string(b) != `"2026-05-04T02:02:01.000001Z"` {
		t.Fatal(string(b), err)
	}
	var back Instant
	if err := json.Unmarshal(b, &back); err != nil || !time.Time(back).Equal(at) {
		t.Error(time.Time(back), err)
	}
}

// Callers that failed together do not return together.
func TestRetryAfterVaries(t *testing.T) {
	seen := make(map[string]bool)
	for range 200 {
		h := http.Header{}
		SetRetryAfter(h)
		seen[h.Get("Retry-After")] = true
	}
	if !reflect.DeepEqual(seen, map[string]bool{"1": true, "2": true, "3": true, "4": true, "5": true}) {
		t.Errorf("%v", seen)
	}
}

// A limiter's results and looks have the form of the service's decisions.
func TestTheDecisionsOfALimiter(t *testing.T) {
	now := time.Date(2026, 5, 4, 23, 59, 0, 0, time.UTC)
	limiter, err := sash.New(memstore.New(&memstore.Options{Now: func() time.Time { return now }}), nil,
		sash.PerMinute(2), sash.PerCalendar(5, sash.CalendarDay, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	const limits = `"limits":[{"name":"2/1m","units":2,"window":60,"remaining":%d},{"name":"5/day@UTC","units":5,"window":0,"period":"day@UTC","remaining":%d}],` +
		`"at":"2026-05-04T23:59:00.000000Z","source":"store"}`
	for _, c := range []struct {
		look        int64 // at a cost, or 0 to request a unit
		says        string
		minute, day int
	}{
		{0, `{"allowed":true,"remaining":1,"retry_after":0,"reset_after":60,"refused_by":null,`, 1, 4},
		{2, `{"allowed":false,"remaining":1,"retry_after":60,"reset_after":60,"refused_by":"2/1m",`, 1, 4},
		{0, `{"allowed":true,"remaining":0,"retry_after":0,"reset_after":60,"refused_by":null,`, 0, 3},
		{0, `{"allowed":false,"remaining":0,"retry_after":60,"reset_after":60,"refused_by":"2/1m",`, 0, 3},
	} {
		var d Decision
		if c.look > 0 {
			res, err := limiter.Peek(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			d = PeekOf(res, c.look)
		} else {
			res, err := limiter.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			d = ResultOf(res)
		}
		got, err := json.Marshal(d)
		if want := c.says + fmt.Sprintf(limits, c.minute, c.day); string(got) != want || err != nil {
			t.Errorf("%s, %v, want\n%s", got, err, want)
		}
	}
}

// A call that waited for its turn in vain was not charged. One that had it may have been.
func TestOverloadSaysWhetherTheCallWasCharged(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{{failover.ErrOverload, Undecided.NotAsked}, {fmt.Errorf("%w (%w)", failover.ErrOverload, failover.ErrBudget), Undecided.Unknown}} {
		if text, cause := Undecided.Of(c.err); cause != "overload" || text != c.want {
			t.Errorf("%v: %q, %q", c.err, cause, text)
		}
	}
	if text, cause := Undecided.Of(memstore.ErrFull); cause != "full" || !strings.Contains(text, "nothing was charged") {
		t.Errorf("a store that is full: %q, %q", cause, text)
	}
}
