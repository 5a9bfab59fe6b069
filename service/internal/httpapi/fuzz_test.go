package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Whatever is sent, the answer is JSON, and one of those that are documented: never a panic, never 500.
func FuzzBodies(f *testing.F) {
	h, _ := virtual(f)
	token := answer(f, send(h, http.MethodPost, "/v1/reserve", ann))["token"].(string)
	for _, body := range []string{
		ann, annFour, annJob,
		`{"token":"` + token + `","used":1}`, `{"token":"` + token + `"}`, `{"token":"a.b","used":-1}`,
		`{"domain":"d","entries":[{"key":"user"}],"cost":1e3}`, `{"domain":"d","entries":[null],"id":null}`,
		`{"domain":"d","entries":[{"key":"day","value":"\ud800"}]}`, `{"DOMAIN":"d"}`, `[[[[`, "null", "\xff", "",
		`{"domain":"d","domain":"e","entries":[{"key":"` + strings.Repeat("x", 600) + `"}]}`,
	} {
		f.Add(body)
	}
	paths := []string{"/v1/allow", "/v1/peek", "/v1/explain", "/v1/reserve", "/v1/settle", "/v1/cancel"}
	statuses := []int{200, 400, 403, 404, 410, 413, 422, 429}
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range paths {
			w := send(h, http.MethodPost, path, body, "Content-Type", "application/json")
			if !slices.Contains(statuses, w.Code) {
				t.Errorf("%s %q: %d %s", path, body, w.Code, w.Body)
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("%s %q: %s", path, body, w.Body)
			}
		}
	})
}
