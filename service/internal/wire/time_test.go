package wire

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"
)

func TestSecondsAreExactDecimals(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0":               0,
		"60":              time.Minute,
		"0.5":             500 * time.Millisecond,
		"0.000001":        time.Microsecond,
		"12.034":          12034 * time.Millisecond,
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
