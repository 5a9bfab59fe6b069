package outgoing

import (
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// fields makes a header of lines such as "Name: value".
func fields(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimSpace(value))
	}
	return h
}

const noonDate = "Date: Mon, 04 May 2026 12:00:00 GMT"

func left(n int64, unit string, limit int64, reset time.Duration) quota {
	return quota{unit: unit, limit: limit, remaining: n, hasRemaining: true, reset: reset, hasReset: true}
}

func TestReadEveryDialect(t *testing.T) {
	windowed := func(q quota, name string, w time.Duration) quota {
		q.name, q.window = name, w
		return q
	}
	noReset := func(q quota) quota {
		q.reset, q.hasReset = 0, false
		return q
	}
	for _, c := range []struct {
		name, vendor string
		header       http.Header
		want         []quota
	}{
		{"draft 11", "", fields(`RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400;pk=:cHsdsRa894==:`, `RateLimit: "burst";r=0;t=12, "daily";r=640;t=51840`),
			[]quota{
				windowed(left(0, "requests", 100, 12*time.Second), "burst", time.Minute),
				windowed(left(640, "requests", 1000, 51840*time.Second), "daily", 24*time.Hour),
			}},
		{"draft 11 over several lines", "", fields(`RateLimit: "a";r=1;t=1`, `RateLimit: "b";r=2;t=2`),
			[]quota{windowed(left(1, "requests", 0, time.Second), "a", 0), windowed(left(2, "requests", 0, 2*time.Second), "b", 0)}},
		{"draft 11 with another unit and no window", "", fields(`RateLimit-Policy: "up";q=1000;qu="content-bytes"`, `RateLimit: "up";r=3`),
			[]quota{noReset(windowed(left(3, "content-bytes", 1000, 0), "up", 0))}},
		{"draft 11 beside older fields", "", fields(`RateLimit: "a";r=1;t=1`, "X-RateLimit-Remaining: 1"),
			[]quota{windowed(left(1, "requests", 0, time.Second), "a", 0)}},
		{"a malformed RateLimit is ignored", "", fields(`RateLimit: "a;r=1;t=1`, "X-RateLimit-Remaining: 9"),
			[]quota{noReset(left(9, "requests", 0, 0))}},
		{"a quota without r is ignored", "", fields(`RateLimit: "a";t=1, "b";r=-1;t=1, "c";r="1", d;r=1`), nil},
		{"draft 07", "", fields("RateLimit: limit=100, remaining=50, reset=30", "RateLimit-Policy: 10;w=1, 100;w=60"),
			[]quota{windowed(left(50, "requests", 100, 30*time.Second), "", time.Minute)}},
		{"draft 06", "", fields("RateLimit-Limit: 100", "RateLimit-Remaining: 50", "RateLimit-Reset: 30", "RateLimit-Policy: 100;w=60"),
			[]quota{windowed(left(50, "requests", 100, 30*time.Second), "", time.Minute)}},
		{"draft 03, with its policies in the limit", "", fields("RateLimit-Limit: 100, 100;w=60, 5000;w=3600", "RateLimit-Remaining: 50", "RateLimit-Reset: 30"),
			[]quota{windowed(left(50, "requests", 100, 30*time.Second), "", time.Minute)}},
		{"legacy, seconds from now", "", fields("X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 59", "X-RateLimit-Reset: 30"),
			[]quota{left(59, "requests", 60, 30*time.Second)}},
		{"legacy, Unix seconds, on the server's clock", "", fields("X-RateLimit-Limit: 60", "X-RateLimit-Remaining: 59", "X-RateLimit-Reset: 1777896030", "Date: Mon, 04 May 2026 12:00:20 GMT"),
			[]quota{left(59, "requests", 60, 10*time.Second)}},
		{"legacy, Unix milliseconds", "", fields("X-RateLimit-Remaining: 59", "X-RateLimit-Reset: 1777896030250", noonDate),
			[]quota{left(59, "requests", 0, 30250*time.Millisecond)}},
		{"legacy, a reset in the past", "", fields("X-RateLimit-Remaining: 59", "X-RateLimit-Reset: 1577896030", noonDate),
			[]quota{left(59, "requests", 0, 0)}},
		{"discord", "discord", fields("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1777896001.470", "X-RateLimit-Reset-After: 1.47", "X-RateLimit-Bucket: abcd1234", "X-RateLimit-Scope: user"),
			[]quota{left(0, "requests", 5, 1470*time.Millisecond)}},
		{"shopify", "shopify", fields("X-Shopify-Shop-Api-Call-Limit: 39/40"),
			[]quota{noReset(left(1, "requests", 40, 0))}},
		{"openai", "openai", fields("x-ratelimit-limit-requests: 60", "x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-requests: 59", "x-ratelimit-remaining-tokens: 149984", "x-ratelimit-reset-requests: 1s", "x-ratelimit-reset-tokens: 6m0s"),
			[]quota{left(59, "requests", 60, time.Second), left(149984, "tokens", 150000, 6*time.Minute)}},
		{"Azure OpenAI", "azure-openai", fields("x-ratelimit-remaining-requests: 79", "x-ratelimit-remaining-tokens: 61353"),
			[]quota{noReset(left(79, "requests", 0, 0)), noReset(left(61353, "tokens", 0, 0))}},
		{"Azure OpenAI, which does not know", "azure-openai", fields("x-ratelimit-limit-tokens: -1", "x-ratelimit-remaining-tokens: -1", "x-ratelimit-reset-tokens: 0"), nil},
		{"the renamed field beside the unmerged one", "", fields(`RateLimit-Policy: "a";q=10;w=60`, `RateLimit: "a";a=7;w=30;c=1`, `RateLimit-Partition: "a";pk=:AAAA:`),
			[]quota{windowed(left(7, "requests", 10, 30*time.Second), "a", time.Minute)}},
		{"anthropic, all four", "anthropic", fields(
			"anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 49", "anthropic-ratelimit-requests-reset: 2026-05-04T12:01:00Z",
			"anthropic-ratelimit-tokens-limit: 48000", "anthropic-ratelimit-tokens-remaining: 47000", "anthropic-ratelimit-tokens-reset: 2026-05-04T12:00:01Z",
			"anthropic-ratelimit-input-tokens-limit: 40000", "anthropic-ratelimit-input-tokens-remaining: 39000", "anthropic-ratelimit-input-tokens-reset: 2026-05-04T12:00:01Z",
			"anthropic-ratelimit-output-tokens-limit: 8000", "anthropic-ratelimit-output-tokens-remaining: 8000", "anthropic-ratelimit-output-tokens-reset: 2026-05-04T12:00:00Z", noonDate),
			[]quota{left(49, "requests", 50, time.Minute), left(47000, "tokens", 48000, time.Second), left(39000, "input-tokens", 40000, time.Second), left(8000, "output-tokens", 8000, 0)}},
		{"youtube says nothing", "youtube", fields("X-RateLimit-Remaining: 3"), nil},
		{"reddit", "", fields("X-Ratelimit-Remaining: 598.0", "X-Ratelimit-Used: 2", "X-Ratelimit-Reset: 312"),
			[]quota{left(598, "requests", 0, 312*time.Second)}},
		{"atlassian", "", fields("X-RateLimit-Limit: 350", "X-RateLimit-Remaining: 208", "X-RateLimit-Reset: 2026-05-04T12:05Z", noonDate),
			[]quota{left(208, "requests", 350, 5*time.Minute)}},
		{"hugging face, with a policy that is not well formed", "", fields(`RateLimit: "api";r=489;t=189`, `RateLimit-Policy: "fixed window";"api";q=500;w=300`),
			[]quota{windowed(left(489, "requests", 0, 189*time.Second), "api", 0)}},
		{"more than any limit is clamped", "", fields("X-RateLimit-Remaining: 99999999999999999999", "X-RateLimit-Reset: 999999999"),
			[]quota{left(sash.MaxUnits, "requests", 0, sash.MaxWindow)}},
		{"what is not a number is ignored", "", fields("X-RateLimit-Limit: -1", "X-RateLimit-Remaining: NaN", "X-RateLimit-Reset: soon"), nil},
		{"a field that is too long", "", fields(`RateLimit: `+strings.Repeat(`"a";r=1;t=1, `, 2000)+`"a";r=1`, "X-RateLimit-Remaining: 9"),
			[]quota{noReset(left(9, "requests", 0, 0))}},
		{"lines that are too long together", "", http.Header{"Ratelimit": slices.Repeat([]string{`"a";r=1;t=1`}, 2000)}, nil},
		{"a number that is too long", "", fields("X-RateLimit-Remaining: " + strings.Repeat("0", 20_000)), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, known := Vendor(c.vendor)
			if known != (c.vendor != "") {
				t.Fatalf("the profile of %q: %v", c.vendor, known)
			}
			if got := p.read(c.header, noon); !slices.Equal(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// Whatever a body contains, the caller gets it unchanged, and the cool-down is bounded.
func FuzzBody(f *testing.F) {
	for _, s := range []string{`{"error":{"errors":[{"reason":"quotaExceeded"}],"code":4}}`, `{"global":true,"retry_after":64.57}`,
		`{"message":"You have exceeded a secondary rate limit."}`, `{"error":{"details":[{"metadata":{"quota_unit":"1/d/{project}"}}]}}`,
		`[[[[`, `{"error":`, "", "null", `{"error":{"code":1e999}}`, "\xff{\"message\":\"\xff\"}"} {
		f.Add(403, s, "")
		f.Add(429, s, "7")
	}
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		for _, p := range append([]Profile{{}}, vendors()...) {
			res := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(strings.NewReader(body))}
			wanted := pauseOf(Call{Profile: &p}, res, nil, noon)
			if wanted.length < 0 || wanted.length > sash.MaxWindow || wanted.refused && wanted.length < shortestCoolDown || wanted.account && !wanted.refused {
				t.Errorf("%d %q: %s makes it %+v", status, body, p.Name, wanted)
			}
			if got, err := io.ReadAll(res.Body); err != nil || string(got) != body {
				t.Errorf("%q became %q, %v", body, got, err)
			}
		}
	})
}

// No response panics, or leads to numbers that a limit cannot have.
func FuzzRead(f *testing.F) {
	for _, s := range []string{`"burst";r=0;t=12`, "limit=100, remaining=50, reset=30", "100, 100;w=60", "40/40", "2.0", "6m0s",
		"2026-05-04T12:01:00Z", "1777896030250", "999999999999999999999", "-1", "NaN", "()", `"a";r=1;t=?1`,
		"1e300", "0x7fffffffffffffff", "18446744073709551616", "Fri, 31 Dec 9999 23:59:59 GMT", "0000-01-01T00:00:00Z", "-2562047h47m16s",
		`"a";r=999999999999999;t=999999999999999`, "limit=0, remaining=0, reset=999999999999999", "40/0", "-3/40", "\x00\r\nX-Injected: 1"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		profiles := append([]Profile{{}}, vendors()...)
		for _, p := range profiles {
			h := http.Header{"Ratelimit": {a}, "Ratelimit-Policy": {b}, "Retry-After": {a}, "Date": {b}}
			for _, q := range p.quotas() {
				for i, name := range []string{q.Limit, q.Remaining, q.UsedOfLimit, q.Reset} {
					if name != "" {
						h.Set(name, []string{a, b}[i%2])
					}
				}
			}
			older := h.Clone()
			older.Del("Ratelimit")
			for _, headers := range []http.Header{h, older} {
				for _, q := range p.read(headers, noon) {
					if q.limit < 0 || q.limit > sash.MaxUnits || q.remaining < 0 || q.remaining > sash.MaxUnits ||
						q.window < 0 || q.window > sash.MaxWindow || q.reset < 0 || q.reset > sash.MaxWindow {
						t.Errorf("%q, %q: %s read %+v", a, b, p.Name, q)
					}
				}
				if d, _ := retryAfter(headers, noon); d < 0 || d > sash.MaxWindow {
					t.Errorf("%q: Retry-After is %v", a, d)
				}
			}
		}
	})
}

const ms = time.Millisecond

// grown returns the ways of n requests that took from least to most, evenly, and of later ones that took the same.
func grown(n int, least, most time.Duration, later int, same time.Duration) *ways {
	known := newBuckets()
	for i := range n {
		known.took("api", least+(most-least)*time.Duration(i)/time.Duration(n-1), false)
	}
	for range later {
		known.took("api", same, false)
	}
	return &known.lock("api").ways
}

func TestTheSpreadIsLearntFromWhatRequestsTake(t *testing.T) {
	for name, c := range map[string]struct {
		seen        *ways
		window      time.Duration
		least, most time.Duration
	}{
		"unknown":                  {new(ways), 5 * time.Second, 500 * ms, 500 * ms},
		"unknown, a long window":   {new(ways), time.Hour, time.Second, time.Second},
		"three are too few":        {grown(3, 0, ms, 0, 0), 5 * time.Second, 500 * ms, 500 * ms},
		"few may be exceeded":      {grown(8, 200*ms, 300*ms, 0, 0), 5 * time.Second, 200 * ms, 250 * ms},
		"many":                     {grown(100, 200*ms, 300*ms, 0, 0), 5 * time.Second, 108 * ms, 158 * ms},
		"all equally far":          {grown(100, 900*ms, 900*ms, 0, 0), 5 * time.Second, 100 * ms, 100 * ms},
		"all equally far, a burst": {grown(100, 900*ms, 900*ms, 0, 0), 100 * ms, 2 * ms, 2 * ms},
		"bounded by the window":    {grown(100, 0, 30*time.Second, 0, 0), 5 * time.Second, 1250 * ms, 1250 * ms},
		"bounded":                  {grown(100, 0, 30*time.Second, 0, 0), time.Hour, 2 * time.Second, 2 * time.Second},
		"equal ones push out":      {grown(100, 0, time.Second, waysKept, 10*ms), 5 * time.Second, 100 * ms, 100 * ms},
	} {
		if d := c.seen.spread(c.window); d < c.least || d > c.most {
			t.Errorf("%s: the spread for windows of %v is %v, want %v to %v", name, c.window, d, c.least, c.most)
		}
	}
}

func TestWhatIsKnownOfBucketsIsBounded(t *testing.T) {
	start := time.Unix(0, 0)
	for name, c := range map[string]struct {
		lasts time.Duration // of each bucket, of which one comes a second
		most  int
		all   bool // nothing that is not over is forgotten
	}{
		"over soon":  {bucketKept, 2 * 3600, true},
		"over late":  {10_000 * time.Second, 2 * 10_000, true},
		"never over": {1 << 62, bucketsMost, false},
	} {
		known, most := newBuckets(), 0
		for i := range 3 * bucketsMost {
			now := start.Add(time.Duration(i) * time.Second)
			b := known.at(strconv.Itoa(i), now)
			if b.sent = 1; i < 100 {
				b.cool.end = start.Add(4 * bucketsMost * time.Second)
			}
			b.keep(now.Add(c.lasts))
			most = max(most, len(known.all))
			if known.at(strconv.Itoa(i), now) != b {
				t.Fatalf("%s: bucket %d was forgotten at once", name, i)
			}
			if oldest := i - int(c.lasts/time.Second); c.all && oldest >= 0 && known.all[strconv.Itoa(oldest)] == nil {
				t.Fatalf("%s: bucket %d was forgotten before its end", name, oldest)
			}
		}
		for i := range 100 {
			if cooling := known.all[strconv.Itoa(i)]; !c.all && cooling == nil {
				t.Errorf("%s: the cool-down of bucket %d was forgotten", name, i)
			}
		}
		if most > c.most+1 {
			t.Errorf("%s: it held %d buckets", name, most)
		}
		if late := start.Add(math.MaxInt64); known.at(strconv.Itoa(3*bucketsMost-1), late).sent != 0 {
			t.Errorf("%s: a bucket is known that is over", name)
		}
	}
}

// The levels of a bucket are few, whatever limits its calls have.
func TestLevelsThatHaveRisenAreForgotten(t *testing.T) {
	b := new(bucket)
	for i := range 100 {
		now := noon.Add(time.Duration(i) * time.Minute)
		b.learn(sash.Every(2, time.Duration(i+1)*time.Second), levels{held: held(1, 20*time.Second, now)}, now)
	}
	if len(b.levels) != 1 {
		t.Errorf("there are %d levels, and one holds", len(b.levels))
	}
}
