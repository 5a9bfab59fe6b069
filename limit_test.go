package sash_test

import (
	"encoding/json"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
)

func TestParseLimit(t *testing.T) {
	pacific := must(time.LoadLocation("America/Los_Angeles"))(t)
	for in, want := range map[string]sash.Limit{
		"300/5m":                        sash.Every(300, 5*time.Minute),
		"60/h":                          sash.PerHour(60),
		"1/ms":                          sash.Every(1, time.Millisecond),
		"7/1m30s":                       sash.Every(7, 90*time.Second),
		"1000/7d":                       sash.Every(1000, 7*24*time.Hour),
		"10000/day@America/Los_Angeles": sash.PerCalendar(10000, sash.CalendarDay, pacific),
		"5/month@UTC":                   sash.PerCalendar(5, sash.CalendarMonth, time.UTC),
	} {
		got, err := sash.ParseLimit(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got.Units != want.Units || got.Window != want.Window || got.Period != want.Period || got.String() != want.String() {
			t.Errorf("%q is read as %v, not %v", in, got, want)
		}
	}
}

func TestParseLimitSaysWhatIsWrong(t *testing.T) {
	for in, hint := range map[string]string{
		"":                    "a slash",
		"300":                 "a slash",
		"many/5m":             "whole number",
		"0/5m":                "at least 1",
		"300/5":               "duration",
		"300/0s":              "at least 1ms",
		"300/1us":             "at least 1ms",
		"300/1.5000001s":      "whole microseconds",
		"300/10000h":          "at most",
		"10/day":              "day@UTC",
		"10/second":           "duration",
		"10 per minute":       "a slash",
		"10/day@Local":        "name the zone",
		"10/day@Nowhere/Land": "unknown time zone",
		"10/week@UTC":         "hour, day or month",
		"2000000000000/5m":    "at most 1099511627775",
	} {
		_, err := sash.ParseLimit(in)
		if !errors.Is(err, sash.ErrInvalidLimit) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v; want ErrInvalidLimit with %q", in, err, hint)
		}
	}
}

// A configuration library reads a limit as text, and writes it as it was.
func TestALimitIsText(t *testing.T) {
	var config struct {
		Burst sash.Limit
		Daily []sash.Limit
		By    map[sash.Limit]string
	}
	const text = `{"Burst":"25/5s","Daily":["10000/day@America/Los_Angeles","9500/1d"],"By":{"1/1h":"x"}}`
	check(t, json.Unmarshal([]byte(text), &config))
	if config.Burst != sash.Every(25, 5*time.Second) || config.Daily[0].Period != sash.CalendarDay || config.By[sash.PerHour(1)] != "x" {
		t.Errorf("%+v", config)
	}
	again, err := json.Marshal(config)
	if err != nil || string(again) != text {
		t.Errorf("written as %s, %v", again, err)
	}
	if err := json.Unmarshal([]byte(`{"Burst":"10 per minute"}`), &config); !errors.Is(err, sash.ErrInvalidLimit) {
		t.Errorf("%v", err)
	}
	if config.Burst != sash.Every(25, 5*time.Second) {
		t.Errorf("text that cannot be read changed the limit to %v", config.Burst)
	}
	if text, err := (sash.Limit{Units: 1}).MarshalText(); !errors.Is(err, sash.ErrInvalidLimit) {
		t.Errorf("a limit without a window is written as %q, %v", text, err)
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.TextVar(&config.Burst, "limit", sash.PerMinute(60), "")
	if err := flags.Parse([]string{"-limit", "7/1m30s"}); err != nil || config.Burst != sash.Every(7, 90*time.Second) {
		t.Errorf("%v, %v", config.Burst, err)
	}
}

func TestNewRefusesWhatCannotBeEnforced(t *testing.T) {
	nine := make([]sash.Limit, 9)
	for i := range nine {
		nine[i] = sash.Every(int64(i+1), time.Duration(i+1)*time.Second)
	}
	for name, c := range map[string]struct {
		opts   *sash.Options
		limits []sash.Limit
		hint   string
	}{
		"no limit":                   {nil, nil, "at least one"},
		"too many limits":            {nil, nine, "the most is 8"},
		"no units":                   {nil, []sash.Limit{{Window: time.Second}}, "at least 1"},
		"no window":                  {nil, []sash.Limit{{Units: 1}}, "at least 1ms"},
		"window and period":          {nil, []sash.Limit{{Units: 1, Window: time.Second, Period: sash.CalendarDay}}, "not both"},
		"one window twice":           {nil, []sash.Limit{sash.PerMinute(1), sash.PerMinute(2)}, "same window"},
		"one name twice":             {nil, []sash.Limit{{Units: 1, Window: time.Second, Name: "a"}, {Units: 1, Window: time.Hour, Name: "a"}}, `called "a"`},
		"more than an entry holds":   {nil, []sash.Limit{sash.PerMinute(2_000_000), sash.PerDay(1 << 40)}, "1099511627775"},
		"a set without bound":        {&sash.Options{Algorithm: sash.SortedSetLog}, []sash.Limit{sash.PerDay(100_001)}, "at most 100000 units"},
		"buckets without resolution": {&sash.Options{Algorithm: sash.SlidingBuckets}, []sash.Limit{sash.PerMinute(1)}, "needs a resolution"},
		"a log with resolution":      {&sash.Options{Resolution: time.Second}, []sash.Limit{sash.PerMinute(1)}, "only that one"},
		"resolution too coarse":      {&sash.Options{Algorithm: sash.SlidingBuckets, Resolution: time.Hour}, []sash.Limit{sash.PerMinute(1)}, "longer than the window"},
		"calendar counter":           {&sash.Options{Algorithm: sash.SlidingCounter}, []sash.Limit{sash.PerCalendar(1, sash.CalendarDay, nil)}, "no calendar"},
		"calendar GCRA":              {&sash.Options{Algorithm: sash.GCRA}, []sash.Limit{sash.PerCalendar(1, sash.CalendarDay, nil)}, "no calendar"},
		"unknown algorithm":          {&sash.Options{Algorithm: 77}, []sash.Limit{sash.PerMinute(1)}, "unknown algorithm"},
	} {
		_, err := sash.New(panicStore{}, c.opts, c.limits...)
		if !errors.Is(err, sash.ErrInvalidLimit) || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%s: %v; want ErrInvalidLimit with %q", name, err, c.hint)
		}
	}
}

func TestAlgorithmNamesRoundTrip(t *testing.T) {
	for _, a := range sash.Algorithms() {
		text, _ := a.MarshalText()
		var b sash.Algorithm
		if err := b.UnmarshalText(text); err != nil || a != b {
			t.Errorf("%v comes back as %v, %v", a, b, err)
		}
	}
	var a sash.Algorithm
	if err := a.UnmarshalText([]byte("token-bucket")); err == nil {
		t.Error("an unknown algorithm was accepted")
	}
}

// FuzzParseLimit shows that what is read can be enforced, and is the same when it is written and read
// again; and that what cannot be read is an error of its own kind.
func FuzzParseLimit(f *testing.F) {
	for _, seed := range []string{
		"300/5m", "25/5s", "9500/24h", "60/h", "1000/7d", "10000/day@America/Los_Angeles", "1/month@UTC", "5/hour@UTC",
		"1/1m0.5s", "1/1h0.000001s", "10/400d", "1/1ms", "1/0s", "-1/5s", "/", "", "1/d", "1/1d2h", "1099511627775/1s",
		"1/9223372036854775807ns", "1/day@", "1/day@../../etc/passwd", "1/day@Local", "1/\x00", "+1/5s", "1/-5s", "1/99999999999d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := sash.ParseLimit(s)
		if err != nil {
			if !errors.Is(err, sash.ErrInvalidLimit) {
				t.Errorf("%q: the error %v is not ErrInvalidLimit", s, err)
			}
			if l != (sash.Limit{}) {
				t.Errorf("%q: an error came with the limit %v", s, l)
			}
			return
		}
		if err := l.Validate(); err != nil {
			t.Errorf("%q was read as a limit that cannot be enforced: %v", s, err)
		}
		again, err := sash.ParseLimit(l.String())
		if err != nil {
			t.Fatalf("%q was written as %q, which cannot be read: %v", s, l, err)
		}
		if again.Units != l.Units || again.Window != l.Window || again.Period != l.Period || zone(again) != zone(l) {
			t.Errorf("%q was read as %v, and that as %v", s, l, again)
		}
	})
}

// FuzzLimitString is the other way round: every limit that can be enforced can be written and read.
func FuzzLimitString(f *testing.F) {
	f.Add(int64(300), int64(5*time.Minute))
	f.Add(int64(1), int64(90*time.Minute+time.Microsecond))
	f.Add(int64(7), int64(36*time.Hour))
	f.Fuzz(func(t *testing.T, units, window int64) {
		l := sash.Every(units, time.Duration(window))
		if l.Validate() != nil {
			return
		}
		if again, err := sash.ParseLimit(l.String()); err != nil || again != l {
			t.Errorf("%v was read as %v, %v", l, again, err)
		}
	})
}

func zone(l sash.Limit) string {
	if l.Zone == nil {
		return "none"
	}
	return l.Zone.String()
}

func TestEqualPolicies(t *testing.T) {
	berlin := must(time.LoadLocation("Europe/Berlin"))(t)
	policy := func(opts *sash.Options, limits ...sash.Limit) *driver.Policy {
		return must(sash.NewPolicy(opts, limits...))(t)
	}
	minute := policy(nil, sash.PerMinute(5))
	for name, other := range map[string]*driver.Policy{
		"units":     policy(nil, sash.PerMinute(6)),
		"window":    policy(nil, sash.PerSecond(5)),
		"more":      policy(nil, sash.PerMinute(5), sash.PerHour(5)),
		"algorithm": policy(&sash.Options{Algorithm: sash.GCRA}, sash.PerMinute(5)),
		"refused":   policy(&sash.Options{CountRefused: true}, sash.PerMinute(5)),
		"calendar":  policy(nil, sash.PerCalendar(5, sash.CalendarDay, nil)),
	} {
		if minute.Equal(other) || other.Equal(minute) {
			t.Errorf("%s: equal", name)
		}
	}
	named := sash.PerMinute(5)
	named.Name = "burst"
	if !minute.Equal(policy(&sash.Options{Prefix: "x"}, named)) {
		t.Error("a name makes a difference")
	}
	if policy(nil, sash.PerCalendar(5, sash.CalendarDay, berlin)).Equal(policy(nil, sash.PerCalendar(5, sash.CalendarDay, nil))) {
		t.Error("a zone makes none")
	}
}

func TestAPlainKeyIsReadable(t *testing.T) {
	if got := sash.Key("user", "42", "GET /items"); got != "user:42:GET%20/items" {
		t.Errorf("it is %q", got)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	token := "ghp_secret"
	part := sash.Secret([]byte("pepper"), token)
	if strings.Contains(sash.Key("token", part), "secret") || len(part) != 43 {
		t.Errorf("the part is %q", part)
	}
	if part != sash.Secret([]byte("pepper"), token) || part == sash.Secret([]byte("salt"), token) || part == sash.Secret([]byte("pepper"), token+"x") {
		t.Error("a secret's part must depend on the secret and the application's key, and on nothing else")
	}
	if part := sash.Secret([]byte("pepper"), ""); part != "" {
		t.Errorf("a missing secret looks like one: %q", part)
	}
}

func TestAKeyOfEmptyPartsIsInvalid(t *testing.T) {
	l := newLimiter(t, memstore.New(nil), nil, sash.PerHour(1))
	for _, key := range []string{sash.Key(), sash.Key(""), sash.Key("", ""), sash.Key("", "", ""), " :", "\u00a0"} {
		if _, err := l.Allow(t.Context(), key); !errors.Is(err, sash.ErrInvalidKey) {
			t.Errorf("%q: %v", key, err)
		}
	}
	for _, key := range []string{":a", "a:", "\u00a0:a", "{a}:"} {
		if _, err := l.Allow(t.Context(), key); err != nil {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// FuzzKey shows that keys are bounded, harmless, and different for different parts. Each input is two
// lists of parts, separated by a byte of the fuzzer's choice.
func FuzzKey(f *testing.F) {
	for _, seed := range [][2]string{
		{"a_b|c", "a|b_c"}, {"a:b|c", "a|b:c"}, {"", "|"}, {"a|", "a"}, {"%41", "A"}, {"{x}|y", "x|y"},
		{"~1~x", "x"}, {"\n\x00\xff", "\n\x00"}, {strings.Repeat("a", 97), strings.Repeat("a", 96)},
		{strings.Repeat("abc|", 200) + "abc", ""}, {strings.Repeat("abc|", 200), strings.Repeat("abc|", 201)}, {strings.Repeat("\x00", 5000), "~5000~"},
		{"a%3Ab|c", "a:b|c"}, {"{a}", "a"}, {"ä", "a"}, {strings.Repeat("é", 50), strings.Repeat("é", 51)}, {strings.Repeat("p |", 400), "p"},
		{strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20) + "x"}, {sash.Key(strings.Repeat("x", 1<<20)), strings.Repeat("x", 1<<20)},
	} {
		f.Add(seed[0], seed[1], byte('|'))
	}
	f.Fuzz(func(t *testing.T, first, second string, separator byte) {
		a, b := strings.Split(first, string(separator)), strings.Split(second, string(separator))
		for _, key := range []string{sash.Key(a...), sash.KeyTogether(second, a...)} {
			if len(key) > sash.MaxKeyLength {
				t.Errorf("%q has %d bytes", key, len(key))
			}
			for i := range len(key) {
				if c := key[i]; c <= ' ' || c > '~' {
					t.Errorf("%q has the byte %#x", key, c)
				}
			}
		}
		key := sash.Key(a...)
		if strings.ContainsAny(key, "{}") {
			t.Errorf("%q could have a hash tag", key)
		}
		if same := slices.Equal(a, b); same != (key == sash.Key(b...)) {
			t.Errorf("the parts %q and %q have the keys %q and %q", a, b, key, sash.Key(b...))
		}
		// Also when one part looks like what the others make together.
		for _, joined := range []string{strings.Join(a, ":"), key} {
			if one := []string{joined}; sash.Key(one...) == key && !slices.Equal(one, a) {
				t.Errorf("the parts %q and the one part %q have the key %q", a, joined, key)
			}
		}
		tagged, want := sash.KeyTogether(first, b...), sash.Key(first)
		if first == "" {
			want = "~" // an empty tag is none
		}
		if tag, rest, ok := strings.Cut(tagged, "}:"); !ok || tag != "{"+want || rest != sash.Key(b...) {
			t.Errorf("KeyTogether(%q, %q) is %q", first, b, tagged)
		}
	})
}
