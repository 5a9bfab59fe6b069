package outgoing_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/outgoing"
)

// A fleet stays under 100,000 tokens and 500 requests a minute of a language model's API. Each request reserves what it may
// use, and is settled to what it used.
func ExampleCall_settle() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":980}}`)
	}))
	defer api.Close()
	now := time.Now()
	store := memstore.New(&memstore.Options{Now: func() time.Time { return now }}) // that of all processes: Redis

	requests := sash.Subject{Key: "openai:requests", Cost: 1, Limits: []sash.Limit{sash.PerMinute(500)}}
	tokens := func(req *http.Request) (outgoing.Call, error) {
		bound, err := outgoing.EstimateRequest(req, nil)
		return outgoing.Call{Key: "openai:tokens", Cost: bound.Total(), Settle: outgoing.Usage.Total, Also: []sash.Subject{requests}}, err
	}
	transport, err := outgoing.New(store, tokens, nil, sash.PerMinute(100_000))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport, Timeout: 3 * time.Second}

	n := 0
	for ; err == nil; n++ {
		var res *http.Response
		if res, err = client.Post(api.URL, "application/json", strings.NewReader(`{"messages":[],"max_completion_tokens":4000}`)); err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	fmt.Println(n-1, "requests of 1,000 tokens, with estimates of 4,000")
	// Output: 96 requests of 1,000 tokens, with estimates of 4,000
}
