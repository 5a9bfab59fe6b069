package outgoing_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/outgoing"
)

// A count is the state of an API's quota at a response.
type count struct {
	refused     bool
	limit, left int
	reset       time.Duration // until all is free
	more        time.Duration // until one more is free
}

// fixed counts in windows that begin at multiples of their length.
func fixed(limit int, window time.Duration) func() count {
	var start time.Time
	used := 0
	return func() count {
		now := time.Now()
		if begin := now.Truncate(window); begin != start {
			start, used = begin, 0
		}
		used++
		until := start.Add(window).Sub(now)
		return count{used > limit, limit, max(limit-used, 0), until, until}
	}
}

// leaking counts in a bucket that leaks its whole content in a window.
func leaking(limit int, window time.Duration) func() count {
	var last time.Time
	level := 0.0
	return func() count {
		now := time.Now()
		each := window / time.Duration(limit)
		level = max(level-float64(now.Sub(last))/float64(each), 0)
		last = now
		refused := level > float64(limit-1)+1e-6
		if !refused {
			level++
		}
		left := int(float64(limit) - level + 1e-6)
		more := time.Duration((level - float64(limit-1)) * float64(each))
		return count{refused, limit, left, time.Duration(level * float64(each)), more}
	}
}

// pacificDays counts in calendar days of California, and sends no fields before it refuses.
func pacificDays(t *testing.T, limit int) (func() count, *time.Location) {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]int{}
	return func() count {
		day := time.Now().In(zone).Format(time.DateOnly)
		used[day]++
		return count{refused: used[day] > limit}
	}, zone
}

// A dialect writes the state of a quota in a vendor's fields.
type dialect func(h http.Header, limit, left int, reset time.Time)

// written returns a dialect of fields such as "X-RateLimit-Remaining: {left}".
func written(lines ...string) dialect {
	return func(h http.Header, limit, left int, reset time.Time) {
		until := time.Until(reset)
		whole := func(n float64) string { return strconv.Itoa(int(math.Ceil(n))) }
		values := strings.NewReplacer(
			"{limit}", strconv.Itoa(limit), "{left}", strconv.Itoa(left), "{used}", strconv.Itoa(limit-left),
			"{s}", whole(until.Seconds()), "{ms}", fmt.Sprintf("%.3f", until.Seconds()), "{duration}", until.String(),
			"{unix}", strconv.FormatInt(reset.Unix(), 10), "{time}", reset.UTC().Format(time.RFC3339),
			"{minute}", reset.UTC().Format("2006-01-02T15:04Z"),
		)
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			h.Set(name, values.Replace(value))
		}
	}
}

// dialects are those of the vendors that their names begin with, or of no vendor.
var dialects = map[string]dialect{
	"draft 11":  written(`RateLimit-Policy: "default";q={limit};w=60`, `RateLimit: "default";r={left};t={s}`),
	"draft 07":  written("RateLimit: limit={limit}, remaining={left}, reset={s}", "RateLimit-Policy: {limit};w=60"),
	"draft 06":  written("RateLimit-Limit: {limit}", "RateLimit-Remaining: {left}", "RateLimit-Reset: {s}"),
	"legacy":    written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset: {unix}"),
	"github":    written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset: {unix}"),
	"discord":   written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset-After: {ms}"),
	"shopify":   written("X-Shopify-Shop-Api-Call-Limit: {used}/{limit}"),
	"reddit":    written("X-RateLimit-Remaining: {left}.0", "X-RateLimit-Reset: {s}"),
	"atlassian": written("X-RateLimit-Limit: {limit}", "X-RateLimit-Remaining: {left}", "X-RateLimit-Reset: {minute}"),
	"openai": written("X-RateLimit-Limit-Requests: {limit}", "X-RateLimit-Remaining-Requests: {left}",
		"X-RateLimit-Reset-Requests: {duration}"),
	"anthropic": written("Anthropic-RateLimit-Requests-Limit: {limit}", "Anthropic-RateLimit-Requests-Remaining: {left}",
		"Anthropic-RateLimit-Requests-Reset: {time}"),
	"huggingface": written(`RateLimit: "api";r={left};t={s}`, `RateLimit-Policy: "fixed window";"api";q={limit};w=60`),
}

// vendorOf returns the profile of the vendor that a name begins with.
func vendorOf(name string) outgoing.Profile {
	name, _, _ = strings.Cut(name, ",")
	p, _ := outgoing.Vendor(name)
	return p
}

func retryAfter(w http.ResponseWriter, c count) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(c.more.Seconds()))))
	w.WriteHeader(http.StatusTooManyRequests)
}

func inTwoSeconds(w http.ResponseWriter, _ count) { answer(429, "Retry-After: 2.0")(w, nil) }

func onlyStatus(w http.ResponseWriter, _ count) { w.WriteHeader(http.StatusTooManyRequests) }

func body(status int, text string) func(http.ResponseWriter, count) {
	return func(w http.ResponseWriter, _ count) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}
}

// Each API enforces its limit and describes it in its own fields. A transport with the right limit is never
// refused, and one with a limit that is ten times too high once at most.
func TestEachAPIWithItsOwnFields(t *testing.T) {
	type counting = func(limit int, window time.Duration) func() count
	for name, c := range map[string]struct {
		counts  counting
		right   sash.Limit
		refusal func(w http.ResponseWriter, c count)
	}{
		"draft 11":    {fixed, sash.PerMinute(60), retryAfter},
		"draft 07":    {fixed, sash.PerMinute(60), retryAfter},
		"draft 06":    {fixed, sash.PerMinute(60), retryAfter},
		"legacy":      {fixed, sash.PerMinute(60), onlyStatus},
		"github":      {fixed, sash.PerHour(60), body(403, `{"message":"API rate limit exceeded for user ID 1."}`)},
		"discord":     {fixed, sash.Every(5, 5*time.Second), retryAfter},
		"shopify":     {leaking, sash.Every(40, 20*time.Second), inTwoSeconds},
		"openai":      {leaking, sash.PerMinute(60), body(429, openaiRate)},
		"anthropic":   {leaking, sash.PerMinute(50), retryAfter},
		"reddit":      {fixed, sash.Every(100, 10*time.Minute), onlyStatus},
		"atlassian":   {fixed, sash.PerHour(100), retryAfter},
		"huggingface": {fixed, sash.Every(500, 5*time.Minute), onlyStatus},
	} {
		tooHigh := c.right
		tooHigh.Units *= 10
		for limit, most := range map[sash.Limit]int{c.right: 0, tooHigh: 1} {
			bubble(t, name+" with "+limit.String(), func(t *testing.T) {
				counts := c.counts(int(c.right.Units), c.right.Window)
				drive(t, vendorOf(name), counts, dialects[name], c.refusal, limit, int(c.right.Units)*3, most)
			})
		}
	}
}

// drive calls until n requests are served, and returns how long it took.
func drive(t *testing.T, p outgoing.Profile, counts func() count, fields dialect, refusal func(http.ResponseWriter, count),
	limit sash.Limit, n, most int,
) time.Duration {
	t.Helper()
	refused := 0
	rt := newTransport(t, newStore(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		c := counts()
		if fields(w.Header(), c.limit, c.left, time.Now().Add(c.reset)); c.refused {
			refused++
			refusal(w, c)
		}
	}, outgoing.Options{Profile: p}, limit)
	start := time.Now()
	for served := 0; served < n; {
		status, err := get(t.Context(), rt)
		if err != nil {
			t.Fatal(err)
		}
		if status == http.StatusOK {
			served++
		}
		if refused > most {
			t.Fatalf("%d refusals after %d calls and %v", refused, served, time.Since(start))
		}
	}
	return time.Since(start)
}

// YouTube sends no fields until it refuses: with too high a limit that is once a day.
func TestYouTubeRefusesOnceADayWhenItsQuotaIsUsedUp(t *testing.T) {
	for name, c := range map[string]struct {
		refusal func(http.ResponseWriter, count)
		right   bool
		most    int
	}{
		"right":                 {body(403, youtubeQuota), true, 0},
		"too high, units":       {body(403, youtubeQuota), false, 2},
		"too high, searches":    {body(429, youtubeSearches), false, 2},
		"too high, older words": {body(403, youtubeDaily), false, 2},
	} {
		bubble(t, name, func(t *testing.T) {
			counts, zone := pacificDays(t, 100)
			limit := sash.PerCalendar(1000, sash.CalendarDay, zone)
			if c.right {
				limit.Units = 100
			}
			// 100 on each of three days: the first is over after 8 hours.
			took := drive(t, vendor(t, "youtube"), counts, silent, c.refusal, limit, 300, c.most)
			if took < 32*time.Hour || took > 40*time.Hour {
				t.Errorf("it took %v", took)
			}
		})
	}
}
