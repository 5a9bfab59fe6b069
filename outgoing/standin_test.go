package outgoing_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
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

// trailing counts in any window.
func trailing(limit int, window time.Duration) func() count {
	var log []time.Time
	return func() count {
		now := time.Now()
		for len(log) > 0 && !log[0].After(now.Add(-window)) {
			log = log[1:]
		}
		refused := len(log) >= limit
		if !refused {
			log = append(log, now)
		}
		return count{refused, limit, limit - len(log), log[len(log)-1].Add(window).Sub(now), log[0].Add(window).Sub(now)}
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

// A dialect writes a count in a vendor's fields.
type dialect func(w http.ResponseWriter, c count)

// limited returns a dialect of a vendor's fields and its refusal.
func limited(fields func(http.Header, int, int, time.Time), refusal func(w http.ResponseWriter, c count)) dialect {
	return func(w http.ResponseWriter, c count) {
		fields(w.Header(), c.limit, c.left, time.Now().Add(c.reset))
		if c.refused {
			refusal(w, c)
		}
	}
}

func retryAfter(w http.ResponseWriter, c count) {
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(c.more.Seconds()))))
	w.WriteHeader(http.StatusTooManyRequests)
}

func onlyStatus(w http.ResponseWriter, _ count) { w.WriteHeader(http.StatusTooManyRequests) }

func body(status int, text string) func(http.ResponseWriter, count) {
	return func(w http.ResponseWriter, _ count) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}
}

func draft06(h http.Header, limit, left int, reset time.Time) {
	h.Set("RateLimit-Limit", strconv.Itoa(limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(left))
	h.Set("RateLimit-Reset", strconv.Itoa(int(math.Ceil(time.Until(reset).Seconds()))))
}

func draft07(h http.Header, limit, left int, reset time.Time) {
	h.Set("RateLimit", fmt.Sprintf("limit=%d, remaining=%d, reset=%d", limit, left, int(math.Ceil(time.Until(reset).Seconds()))))
	h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=60", limit))
}

func legacy(h http.Header, limit, left int, reset time.Time) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10))
}

// business is Meta's field for business use cases, in percent and minutes.
func business(h http.Header, limit, left int, reset time.Time) {
	minutes := 0
	if left == 0 {
		minutes = int(math.Ceil(time.Until(reset).Minutes()))
	}
	h.Set("X-Business-Use-Case-Usage", fmt.Sprintf(
		`{"66782684":[{"type":"ads_management","call_count":%d,"total_cputime":1,"total_time":1,"estimated_time_to_regain_access":%d}]}`,
		100-100*left/limit, minutes))
}

// Each API enforces its limit and describes it in its own fields. A transport with the right limit is never
// refused, and one with a limit that is ten times too high once at most.
func TestEachAPIWithItsOwnFields(t *testing.T) {
	for name, c := range map[string]struct {
		vendor string
		counts func() func() count
		says   dialect
		right  sash.Limit
	}{
		"draft 11":    {"", func() func() count { return fixed(60, time.Minute) }, limited(draft11, retryAfter), sash.PerMinute(60)},
		"draft 07":    {"", func() func() count { return fixed(60, time.Minute) }, limited(draft07, retryAfter), sash.PerMinute(60)},
		"draft 06":    {"", func() func() count { return fixed(60, time.Minute) }, limited(draft06, retryAfter), sash.PerMinute(60)},
		"legacy":      {"", func() func() count { return fixed(60, time.Minute) }, limited(legacy, onlyStatus), sash.PerMinute(60)},
		"github":      {"github", func() func() count { return fixed(60, time.Hour) }, limited(github, body(403, `{"message":"API rate limit exceeded for user ID 1."}`)), sash.PerHour(60)},
		"discord":     {"discord", func() func() count { return fixed(5, 5*time.Second) }, limited(discord, retryAfter), sash.Every(5, 5*time.Second)},
		"shopify":     {"shopify", func() func() count { return leaking(40, 20*time.Second) }, limited(shopify, func(w http.ResponseWriter, c count) { answer(429, "Retry-After: 2.0")(w, nil) }), sash.Every(40, 20*time.Second)},
		"openai":      {"openai", func() func() count { return leaking(60, time.Minute) }, limited(openai, body(429, openaiRate)), sash.PerMinute(60)},
		"anthropic":   {"anthropic", func() func() count { return leaking(50, time.Minute) }, limited(anthropic, retryAfter), sash.PerMinute(50)},
		"meta":        {"meta", func() func() count { return trailing(200, time.Hour) }, limited(business, body(400, metaAds)), sash.PerHour(200)},
		"reddit":      {"reddit", func() func() count { return fixed(100, 10*time.Minute) }, limited(reddit, onlyStatus), sash.Every(100, 10*time.Minute)},
		"atlassian":   {"atlassian", func() func() count { return fixed(100, time.Hour) }, limited(atlassian, retryAfter), sash.PerHour(100)},
		"huggingface": {"huggingface", func() func() count { return fixed(500, 5*time.Minute) }, limited(huggingface, onlyStatus), sash.Every(500, 5*time.Minute)},
	} {
		tooHigh := c.right
		tooHigh.Units *= 10
		for limit, most := range map[sash.Limit]int{c.right: 0, tooHigh: 1} {
			t.Run(name+" with "+limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					drive(t, c.vendor, c.counts(), c.says, limit, int(c.right.Units)*3, most)
				})
			})
		}
	}
}

// drive calls until n requests are served, and returns how long it took.
func drive(t *testing.T, name string, counts func() count, says dialect, limit sash.Limit, n, most int) time.Duration {
	t.Helper()
	opts := outgoing.Options{}
	if name != "" {
		opts.Profile = vendor(t, name)
	}
	refused := 0
	rt := newTransport(t, newStore(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
		c := counts()
		if c.refused {
			refused++
		}
		says(w, c)
	}, opts, limit)
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts, zone := pacificDays(t, 100)
				limit := sash.PerCalendar(1000, sash.CalendarDay, zone)
				if c.right {
					limit.Units = 100
				}
				// 100 on each of three days: the first is over after 8 hours.
				took := drive(t, "youtube", counts, limited(silent, c.refusal), limit, 300, c.most)
				if took < 32*time.Hour || took > 40*time.Hour {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
