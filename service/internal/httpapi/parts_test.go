package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/sash/memstore"
)

// parts returns the body of a request of users in parts, each with its cost.
func parts(of string, users ...any) string {
	var all []string
	for i := 0; i < len(users); i += 2 {
		all = append(all, fmt.Sprintf(`{"entries":[{"key":"user","value":"%v"}],"cost":%v}`, users[i], users[i+1]))
	}
	return fmt.Sprintf(`{"domain":"d","of":"%s","parts":[%s]}`, of, strings.Join(all, ","))
}

func is(t *testing.T, got map[string]any, fields ...any) {
	t.Helper()
	for i := 0; i < len(fields); i += 2 {
		if name := fields[i].(string); got[name] != fields[i+1] {
			t.Errorf("%s is %v, want %v: %v", name, got[name], fields[i+1], got)
		}
	}
}

func left(t *testing.T, h http.Handler, want map[string]float64) {
	t.Helper()
	for user, units := range want {
		is(t, post(t, h, "/v1/peek", strings.ReplaceAll(ann, "ann", user), 200), "remaining", units)
	}
}

// All parts are charged, or none is, and the answer is that of the part that refuses for longest or has the fewest units left.
func TestAllPartsOfARequest(t *testing.T) {
	h, c := virtual(t)
	is(t, post(t, h, "/v1/peek", parts("all", "ann", 1, "bob", 2), 200), "allowed", true, "part", 0.0, "remaining", 3.0)
	is(t, post(t, h, "/v1/allow", parts("all", "ann", 1, "bob", 2), 200), "allowed", true, "part", 1.0, "remaining", 1.0, "refused_by", nil)
	is(t, post(t, h, "/v1/allow", parts("all", "ann", 1, "bob", 2), 429), "allowed", false, "part", 1.0, "refused_by", "3/10s", "retry_after", 10.0)
	c.now = c.now.Add(time.Second)
	is(t, post(t, h, "/v1/allow", parts("all", "ann", 2), 200), "part", nil)
	is(t, post(t, h, "/v1/allow", parts("all", "ann", 3, "bob", 2, "eve", 1), 429), "part", 0.0, "refused_by", "4/1m", "retry_after", 60.0)
	left(t, h, map[string]float64{"ann": 0, "bob": 1, "eve": 3})
	is(t, post(t, h, "/v1/allow", parts("all", "ann", 4, "bob", 1), 422), "allowed", nil)
	for _, path := range []string{"peek", "allow", "reserve"} {
		post(t, h, "/v1/"+path, parts("all", "eve", 1, "bob", 1, "eve", 1), 400)
	}
	left(t, h, map[string]float64{"eve": 3})
}

// A token settles, gives back and extends all parts of a reservation, and of any the one that was chosen.
func TestReservationsOfParts(t *testing.T) {
	c := &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	h := newHandler(t, memstore.New(&memstore.Options{Now: c.read}), &Options{Tokens: tokensAt(c.read, "key")})
	token := func(of string, users ...any) string {
		t.Helper()
		return post(t, h, "/v1/reserve", parts(of, users...), 200)["token"].(string)
	}
	settle := func(token, used string, status int) {
		t.Helper()
		post(t, h, "/v1/settle", `{"token":"`+token+`","used":`+used+`}`, status)
	}
	both := token("all", "ann", 2, "bob", 3)
	if got := post(t, h, "/v1/reserve", parts("all", "ann", 1, "bob", 1), 429); got["token"] != nil {
		t.Errorf("a refusal has a token: %v", got)
	}
	left(t, h, map[string]float64{"ann": 1, "bob": 0})
	settle(both, "1", 400)
	settle(both, "[1]", 400)
	settle(both, "[]", 400)
	settle(both, "[null,0]", 400)
	settle(both, "[0,-1]", 400) // and settles neither
	settle(both, "[1,2]", 200)
	settle(both, "[0,0]", 200) // the first one counts
	left(t, h, map[string]float64{"ann": 2, "bob": 1})
	second := token("all", "ann", 2, "bob", 1)
	post(t, h, "/v1/cancel", `{"token":"`+second+`"}`, 200)
	third := token("any", "ann", 1, "eve", 1, "bob", 1)
	left(t, h, map[string]float64{"ann": 2, "bob": 1, "eve": 2})
	settle(third, "0", 200)
	settle(token("all", "ann", 1, "nobody", 1), "[0,0]", 200)
	left(t, h, map[string]float64{"ann": 2, "bob": 1, "eve": 3})
	// Calls in flight extend what they hold.
	slot := token("all", "eve", 3, "nobody", 1)
	for range 3 {
		c.now = c.now.Add(9 * time.Second)
		post(t, h, "/v1/allow", parts("all", "eve", 1), 429)
		before := slot
		slot = post(t, h, "/v1/extend", `{"token":"`+before+`"}`, 200)["token"].(string)
		post(t, h, "/v1/extend", `{"token":"`+before+`"}`, 410)
		settle(before, "[0,0]", 200) // does nothing, nor does it keep the next one from it
	}
	post(t, h, "/v1/cancel", `{"token":"`+slot+`"}`, 200)
	post(t, h, "/v1/extend", `{"token":"`+slot+`"}`, 410)
	left(t, h, map[string]float64{"eve": 3})
	c.now = c.now.Add(3 * time.Minute)
	settle(both, "[1,2]", 410)
}
