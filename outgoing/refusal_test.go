package outgoing_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// The refusals of the APIs.
const (
	youtubeQuota = `{"error":{"code":403,"message":"The request cannot be completed because you have exceeded your <a href=\"/youtube/v3/getting-started#quota\">quota</a>.",
		"errors":[{"message":"The request cannot be completed because you have exceeded your <a href=\"/youtube/v3/getting-started#quota\">quota</a>.","domain":"youtube.quota","reason":"quotaExceeded"}]}}`
	youtubeDaily = `{"error":{"errors":[{"domain":"usageLimits","reason":"dailyLimitExceeded",
		"message":"Daily Limit Exceeded. The quota will be reset at midnight Pacific Time (PT). You may monitor your quota usage and adjust limits in the API Console."}],
		"code":403,"message":"Daily Limit Exceeded. The quota will be reset at midnight Pacific Time (PT)."}}`
	youtubeSearches = `{"error":{"code":429,"message":"Quota exceeded for quota metric 'Search Queries' and limit 'Search Queries per day' of service 'youtube.googleapis.com' for consumer 'project_number:123'.",
		"errors":[{"message":"Quota exceeded","domain":"global","reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}`
	youtubeRate   = `{"error":{"errors":[{"domain":"usageLimits","reason":"rateLimitExceeded","message":"Rate Limit Exceeded"}],"code":403,"message":"Rate Limit Exceeded"}}`
	youtubeRights = `{"error":{"errors":[{"domain":"youtube.common","reason":"forbidden","message":"Forbidden"}],"code":403,"message":"Forbidden"}}`

	githubSecondary = `{"documentation_url":"https://docs.github.com/free-pro-team@latest/rest/overview/rate-limits-for-the-rest-api#about-secondary-rate-limits",
		"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	githubRights = `{"message":"Resource not accessible by integration","documentation_url":"https://docs.github.com/rest","status":"403"}`

	discordGlobal = `{"message":"You are being rate limited.","retry_after":64.57,"global":true}`
	discordRoute  = `{"message":"You are being rate limited.","retry_after":1.336,"global":false}`

	metaApp   = `{"error":{"message":"(#4) Application request limit reached","type":"OAuthException","is_transient":true,"code":4,"fbtrace_id":"A1b"}}`
	metaAds   = `{"error":{"message":"There have been too many calls from this ad-account. Wait a bit and try again.","type":"OAuthException","code":80004,"error_subcode":2446079}}`
	metaProof = `{"error":{"message":"(#104) This API call requires an appsecret_proof","type":"OAuthException","code":104}}`

	openaiPaid = `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`
	openaiRate = `{"error":{"message":"Rate limit reached for requests","type":"requests","param":null,"code":"rate_limit_exceeded"}}`

	geminiDay = `{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[
		{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateContentInputTokensPerModelPerMinute-FreeTier"},
			{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]},
		{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"5s"}]}}`
	geminiMinute = `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}]}}`

	bedrockDay  = `{"message":"Too many tokens per day, please wait before trying again."}`
	bedrockRate = `{"message":"Too many tokens, please wait before trying again."}`
)

func says(status int, body string, lines ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		answer(status, lines...)(w, req)
		_, _ = w.Write([]byte(body))
	}
}

// One refusal stops all processes, for as long as the response says in its fields or in its body.
func TestOneRefusalStopsAllProcesses(t *testing.T) {
	// The tests' clocks start at 2000-01-01 00:00 UTC, when it is four in the afternoon at YouTube.
	const untilMidnight = 8 * time.Hour
	for name, c := range map[string]struct {
		vendor string
		base   http.HandlerFunc
		want   time.Duration
	}{
		"429 with Retry-After":             {"", answer(429, "Retry-After: 30"), 30 * time.Second},
		"429 with a fraction":              {"shopify", answer(429, "Retry-After: 2.0"), 2 * time.Second},
		"429 with nothing":                 {"", answer(429), time.Second},
		"429 with a reset":                 {"discord", answer(429, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1.470"), 1470 * time.Millisecond},
		"Retry-After wins over a reset":    {"", answer(429, "Retry-After: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 90"), 5 * time.Second},
		"github, secondary":                {"github", answer(403, "Retry-After: 60", "X-RateLimit-Remaining: 4000"), time.Minute},
		"github, secondary with nothing":   {"github", answer(429, "X-RateLimit-Remaining: 4000"), time.Minute},
		"github, exhausted":                {"github", answer(403, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1777896600", "Date: Mon, 04 May 2026 12:00:00 GMT"), 10 * time.Minute},
		"github, forbidden":                {"github", answer(403, "X-RateLimit-Remaining: 4000"), 0},
		"forbidden elsewhere":              {"", answer(403, "Retry-After: 60"), 0},
		"503 with Retry-After":             {"", answer(503, "Retry-After: 7"), 7 * time.Second},
		"503 with nothing":                 {"", answer(503), 0},
		"200 with nothing left":            {"", answer(200, `RateLimit: "a";r=0;t=12`), 12 * time.Second},
		"200 with nothing left, no reset":  {"", answer(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Limit: 5000"), time.Second},
		"in-flight requests all in use":    {"", answer(200, `RateLimit-Policy: "a";q=5;qu="concurrent-requests"`, `RateLimit: "a";r=0;t=12`), 0},
		"too long":                         {"", answer(429, "Retry-After: 99999999"), time.Hour},
		"youtube, units used up":           {"youtube", says(403, youtubeQuota), untilMidnight},
		"youtube, units used up, older":    {"youtube", says(403, youtubeDaily), untilMidnight},
		"youtube, searches of the day":     {"youtube", says(429, youtubeSearches), untilMidnight},
		"youtube, on the server's clock":   {"youtube", says(403, youtubeQuota, "Date: Sat, 01 Jan 2000 07:59:00 GMT"), time.Minute},
		"youtube, a day of 25 hours":       {"youtube", says(403, youtubeQuota, "Date: Sun, 01 Nov 2026 07:00:00 GMT"), 25 * time.Hour},
		"youtube, a day of 23 hours":       {"youtube", says(403, youtubeQuota, "Date: Sun, 08 Mar 2026 08:00:00 GMT"), 23 * time.Hour},
		"youtube, Retry-After wins":        {"youtube", says(403, youtubeQuota, "Retry-After: 90"), 90 * time.Second},
		"youtube, too fast":                {"youtube", says(403, youtubeRate), time.Minute},
		"youtube, another 403":             {"youtube", says(403, youtubeRights), 0},
		"github, secondary by its message": {"github", says(403, githubSecondary, "X-RateLimit-Limit: 5000", "X-RateLimit-Remaining: 4893"), time.Minute},
		"github, another 403":              {"github", says(403, githubRights, "X-RateLimit-Remaining: 4893"), 0},
		"meta, the application":            {"meta", says(400, metaApp), time.Minute},
		"meta, a business use case":        {"meta", says(400, metaAds), time.Minute},
		"meta, code 104 is not code 4":     {"meta", says(400, metaProof), 0},
		"openai, nothing is paid for":      {"openai", says(429, openaiPaid), time.Hour},
		"openai, too fast":                 {"openai", says(429, openaiRate, "X-RateLimit-Remaining-Requests: 0", "X-RateLimit-Reset-Requests: 8.64s"), 8640 * time.Millisecond},
		"gemini, the day's":                {"gemini", says(429, geminiDay), untilMidnight},
		"gemini, the minute's":             {"gemini", says(429, geminiMinute), time.Minute},
		"bedrock, the day's":               {"bedrock", says(429, bedrockDay), time.Hour},
		"bedrock, too fast":                {"bedrock", says(429, bedrockRate), time.Second},
		"an API that is not known at all":  {"", says(403, youtubeQuota), 0},
	} {
		bubble(t, name, func(t *testing.T) {
			store, opts := newStore(), outgoing.Options{Refuse: true, Profile: vendor(t, c.vendor)}
			first := newTransport(t, store, c.base, opts, sash.PerHour(5000))
			sent(t, first)
			other := newTransport(t, store, answer(200), opts, sash.PerHour(5000))
			for _, rt := range []http.RoundTripper{other, first} {
				if d := coolDown(t, rt); d != c.want {
					t.Errorf("the cool-down is %v, want %v", d, c.want)
				}
			}
			time.Sleep(c.want)
			ok(t, newTransport(t, store, answer(200), opts, sash.PerHour(5000)))
		})
	}
}

// routes has a bucket for each path, all of one account.
func getPath(t *testing.T, rt http.RoundTripper, path string) error {
	t.Helper()
	req := newRequest(t, http.MethodGet, "http://api.test"+path, nil)
	res, err := (&http.Client{Transport: rt}).Do(req)
	if err == nil {
		res.Body.Close()
	}
	return err
}

func TestARefusalForEverythingStopsAllBucketsOfTheAccount(t *testing.T) {
	for name, c := range map[string]struct {
		base      http.HandlerFunc
		account   string
		elsewhere bool // another route of the account is stopped too
	}{
		"a route's own":           {says(429, discordRoute, "Retry-After: 65", "X-RateLimit-Scope: user", "X-RateLimit-Bucket: abcd1234"), "bot", false},
		"global, by its scope":    {answer(429, "Retry-After: 65", "X-RateLimit-Scope: global"), "bot", true},
		"global, by its field":    {answer(429, "Retry-After: 65", "X-RateLimit-Global: true"), "bot", true},
		"global, by its body":     {says(429, discordGlobal, "Retry-After: 65"), "bot", true},
		"global, without account": {says(429, discordGlobal, "Retry-After: 65"), "", false},
	} {
		bubble(t, name, func(t *testing.T) {
			store := newStore()
			transport := func(account string, base http.HandlerFunc) http.RoundTripper {
				route := func(req *http.Request) (outgoing.Call, error) {
					return outgoing.Call{Key: sash.Key("bot", req.URL.Path), Account: account}, nil
				}
				return newRoundTripper(t, store, route, &outgoing.Options{Refuse: true, Base: handled(base), Profile: vendor(t, "discord")}, sash.PerSecond(5))
			}
			if err := getPath(t, transport(c.account, c.base), "/channels"); err != nil {
				t.Fatal(err)
			}
			other := transport(c.account, answer(200)) // of another process
			if err := getPath(t, other, "/channels"); !errors.Is(err, sash.ErrLimited) {
				t.Errorf("the route that was refused: %v", err)
			}
			err := getPath(t, other, "/guilds")
			var cool *outgoing.CoolDownError
			if errors.As(err, &cool) != c.elsewhere {
				t.Errorf("another route: %v", err)
			}
			if c.elsewhere && (cool.Key != "bot" || cool.RetryAfter != 65*time.Second) {
				t.Errorf("%+v", cool)
			}
			if err := getPath(t, transport("another bot", answer(200)), "/users"); err != nil {
				t.Errorf("another account: %v", err)
			}
		})
	}
}

// A response describes the Key. What the transport learns applies wherever the bucket is charged, and does not
// spread to the buckets that were charged with it.
func TestLearntLimitsApplyToTheKeyWhereverItIsCharged(t *testing.T) {
	pool := sash.Subject{Key: "pool", Cost: 1}
	route := func(req *http.Request) (outgoing.Call, error) {
		switch req.URL.Path {
		case "/search":
			return outgoing.Call{Key: "search", Also: []sash.Subject{pool}}, nil
		case "/upload":
			return outgoing.Call{Key: "upload", Also: []sash.Subject{pool}}, nil
		}
		return outgoing.Call{Key: "pool"}, nil
	}
	for name, c := range map[string]struct {
		base    http.HandlerFunc
		path    string
		stopped map[string]bool
	}{
		"a cool-down of one key":              {answer(429, "Retry-After: 60"), "/search", map[string]bool{"/search": true, "/upload": false, "/videos": false}},
		"a cool-down of what others charge":   {answer(429, "Retry-After: 60"), "/videos", map[string]bool{"/search": true, "/upload": true, "/videos": true}},
		"a lower limit of one key":            {answer(200, "X-RateLimit-Remaining: 1"), "/search", map[string]bool{"/search": true, "/upload": false, "/videos": false}},
		"a lower limit of what others charge": {answer(200, "X-RateLimit-Remaining: 1"), "/videos", map[string]bool{"/search": true, "/upload": true, "/videos": true}},
	} {
		bubble(t, name, func(t *testing.T) {
			base := c.base
			rt := newRoundTripper(t, newStore(), route, &outgoing.Options{Refuse: true,
				Base: handled(func(w http.ResponseWriter, req *http.Request) { base(w, req) })}, sash.PerHour(100))
			if err := getPath(t, rt, c.path); err != nil {
				t.Fatal(err)
			}
			base = answer(200)
			if err := getPath(t, rt, c.path); (err != nil) != strings.Contains(name, "cool-down") {
				t.Fatal("the last of a lower limit:", err)
			}
			for path, stopped := range c.stopped {
				if err := getPath(t, rt, path); errors.Is(err, sash.ErrLimited) != stopped {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// Tokens that the API says are left lower what may be sent, where others use its quota too; they never raise it.
func TestTokensThatAreLeftLowerTheBudget(t *testing.T) {
	for remaining, want := range map[string]int{"150": 2, "9999": 10} { // calls of 100 tokens
		bubble(t, remaining, func(t *testing.T) {
			opts := outgoing.Options{Refuse: true, Profile: vendor(t, "azure-openai"), Spread: -1}
			opts.Base = handled(answer(200, "X-RateLimit-Remaining-Tokens: "+remaining))
			tokens := func(*http.Request) (outgoing.Call, error) {
				return outgoing.Call{Key: "tokens", Unit: "tokens", Cost: 100}, nil
			}
			rt, n := newRoundTripper(t, newStore(), tokens, &opts, sash.PerMinute(1000)), 0
			for err := error(nil); err == nil; n++ {
				_, err = get(t.Context(), rt)
			}
			if n != want+1 {
				t.Errorf("%d calls pass, not %d", n-1, want)
			}
		})
	}
}
