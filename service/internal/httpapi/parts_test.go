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

func left(t *testing.T, h http.Handler, want map[string]float64) {
	t.Helper()
	for user, units := range want {
		if said := post(t, h, "/v1/peek", strings.ReplaceAll(ann, "ann", user), 200); said["remaining"] != units {
			t.Errorf("%s has %v left, want %v", user, said["remaining"], units)
		}
	}
}

// A token settles and extends all parts of a reservation, with the units that each of them used.
func TestATokenIsOfAllParts(t *testing.T) {
	c := &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	h := newHandler(t, memstore.New(&memstore.Options{Now: c.read}), &Options{Tokens: tokensAt(c.read, "key")})
	both := post(t, h, "/v1/reserve", parts("all", "ann", 2, "bob", 3), 200)["token"].(string)
	if got := post(t, h, "/v1/reserve", parts("all", "ann", 1, "bob", 1), 429); got["token"] != nil || got["part"] != 1.0 {
		t.Errorf("a refusal: %v", got)
	}
	both = post(t, h, "/v1/extend", `{"token":"`+both+`"}`, 200)["token"].(string)
	for _, wrong := range []string{"1", "[1]", "[]", "[null,0]", "[0,-1]"} { // and none of them settles
		post(t, h, "/v1/settle", `{"token":"`+both+`","used":`+wrong+`}`, 400)
	}
	for _, used := range []string{"[1,2]", "[0,0]"} { // the first one counts
		post(t, h, "/v1/settle", `{"token":"`+both+`","used":`+used+`}`, 200)
		left(t, h, map[string]float64{"ann": 2, "bob": 1})
	}
}
