package outgoing_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/outgoing"
)

// No credential is sent to another host, scheme or port: neither by a redirect nor directly.
func TestACredentialIsSentToItsOriginAlone(t *testing.T) {
	var mu sync.Mutex
	var leaked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		leaked = append(leaked, fmt.Sprint(r.Header, r.URL))
	}))
	defer elsewhere.Close()
	var paths []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path+" "+r.Header.Get("Authorization"))
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/file", http.StatusTemporaryRedirect)
		case "/name": // the same server by another name
			http.Redirect(w, r, strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1)+"/here", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/here", http.StatusMovedPermanently)
		}
	}))
	defer api.Close()
	const token = "t0p-s3cret"
	client := &http.Client{Transport: pooled(t, newStore(), newPool(t, api.URL, token), outgoing.Options{}, sash.PerMinute(100))}
	fetch := func(url string) (*http.Response, error) {
		req := newRequest(t, http.MethodGet, url, nil)
		return client.Do(req)
	}
	for _, path := range []string{"/away", "/name", "/moved"} {
		res, err := fetch(api.URL + path)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", path, err)
		}
		_ = res.Body.Close()
		for r := res; r != nil; r = r.Request.Response {
			if strings.Contains(fmt.Sprint(r.Request.Header), token) {
				t.Errorf("%s: the response returns the credential: %v", path, r.Request.Header)
			}
		}
	}
	if len(leaked) != 1 || strings.Contains(leaked[0], token) {
		t.Errorf("another host got %q", leaked)
	}
	signed := "Bearer " + token
	want := []string{"/away " + signed, "/name " + signed, "/here ", "/moved " + signed, "/here " + signed}
	if fmt.Sprint(paths) != fmt.Sprint(want) {
		t.Errorf("the API got %q, want %q", paths, want)
	}
	for _, url := range []string{elsewhere.URL, strings.Replace(api.URL, "http", "https", 1)} {
		//nolint:bodyclose // there is no answer
		if _, err := fetch(url); err == nil || !strings.Contains(err.Error(), "the credentials of the pool are for http://127.0.0.1") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if len(leaked) != 1 {
		t.Errorf("a request that is not for the API was sent: %q", leaked)
	}
}

// Errors of wrong pools say which credential is wrong, and never show one.
func TestWrongPools(t *testing.T) {
	good := "g00d-t0ken"
	for name, c := range map[string]struct {
		origin      string
		key         []byte
		credentials []string
		want        string
	}{
		"no credentials":       {apiTest, hmacKey, nil, "0 credentials"},
		"too many":             {apiTest, hmacKey, tokens(sash.MaxAny + 1), "257 credentials"},
		"an empty one":         {apiTest, hmacKey, []string{good, ""}, "credential 2 of 2 is empty"},
		"a line break":         {apiTest, hmacKey, []string{good + "\n"}, "credential 1 of 1 begins or ends with white space"},
		"another header field": {apiTest, hmacKey, []string{good + "\r\nX-Admin: 1"}, "credential 1 of 1 has the byte 0x0d at position 10"},
		"a zero byte":          {apiTest, hmacKey, []string{good + "\x00x"}, "has the byte 0x00"},
		"not ASCII":            {apiTest, hmacKey, []string{good + "é"}, "has the byte 0xc3"},
		"one twice":            {apiTest, hmacKey, []string{good, "b", good}, "credentials 1 and 3 are the same"},
		"a short HMAC key":     {apiTest, hmacKey[:31], []string{good}, "31 bytes"},
		"no origin":            {"", hmacKey, []string{good}, "the origin of a pool"},
		"no scheme":            {"api.github.com", hmacKey, []string{good}, "the origin of a pool"},
		"a path":               {"https://api.github.com/v3", hmacKey, []string{good}, "the origin of a pool"},
		"another scheme":       {"ftp://api.github.com", hmacKey, []string{good}, "the origin of a pool"},
		"a password":           {"https://u:" + good + "@api.github.com", hmacKey, []string{good}, "the origin of a pool"},
	} {
		_, err := outgoing.NewPool(c.origin, c.key, c.credentials, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), good) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	pool := newPool(t, apiTest, good)
	for name, call := range map[string]outgoing.Call{
		"an account": {Key: "a", Pool: pool, Account: "b"},
		"also":       {Key: "a", Pool: pool, Also: []sash.Subject{{Key: "b", Cost: 1}}},
	} {
		rt := newRoundTripper(t, newStore(), func(*http.Request) (outgoing.Call, error) { return call, nil }, nil, sash.PerMinute(1))
		if _, err := get(t.Context(), rt); err == nil || !strings.Contains(err.Error(), "a Call with a Pool") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A credential is in nothing that is printed, and in no error.
func TestACredentialIsNowhere(t *testing.T) {
	const token = "t0p-s3cret"
	pool := newPool(t, apiTest, token)
	var logged bytes.Buffer
	call := outgoing.Call{Key: "github", Pool: pool}
	for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(h).Info("pool", "pool", pool, "call", call)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		_, _ = fmt.Fprintf(&logged, format+format+format+format, pool, *pool, call, &call)
	}
	if err := json.NewEncoder(&logged).Encode(pool); err != nil { //nolint:staticcheck // that nothing is exported is what this shows
		t.Fatal(err)
	}
	failing := func(req *http.Request) (*http.Response, error) { return nil, fmt.Errorf("cannot send %v", req.Header) }
	inner := newStore()
	store := over(inner, func(ctx context.Context, b *driver.Batch) error {
		for _, op := range b.Ops {
			logged.WriteString(op.Key)
		}
		return inner.Do(ctx, b)
	})
	rt := pooled(t, store, pool, outgoing.Options{Refuse: true, Base: roundTripper(failing)}, sash.PerMinute(1))
	for range 2 { // an error of the transport behind, and a refusal
		_, err := get(t.Context(), rt)
		if err == nil {
			t.Fatal("no error")
		}
		for ; err != nil; err = errors.Unwrap(err) {
			_, _ = fmt.Fprintf(&logged, "%v %+v %#v", err, err, err)
		}
	}
	if !strings.Contains(logged.String(), sash.Key("github")) {
		t.Fatal("the keys of the store are not looked at:", logged.String())
	}
	for _, form := range []string{token, fmt.Sprintf("%x", token), fmt.Sprintf("%q", token)} {
		if strings.Contains(logged.String(), form) {
			t.Errorf("%q is in %s", form, logged.String())
		}
	}
}

// An error of a transport behind is what it was, without the credential in any form in which the request has it.
func TestAnErrorIsWhatItWasWithoutTheCredential(t *testing.T) {
	const token = `t0p"s3cret/+ key`
	for name, c := range map[string]struct {
		set   func(req *http.Request, credential string)
		forms []string
	}{
		"a header field": {nil, []string{token, `t0p\"s3cret`}},
		"basic": {
			func(req *http.Request, credential string) { req.SetBasicAuth("bot", credential) },
			[]string{base64.StdEncoding.EncodeToString([]byte("bot:" + token))},
		},
		"the query": {
			func(req *http.Request, credential string) {
				req.URL.RawQuery = "q=1&key=" + url.QueryEscape(credential)
			},
			[]string{token, url.QueryEscape(token), url.PathEscape(token), `t0p\"s3cret`},
		},
	} {
		pool := must(outgoing.NewPool(apiTest, hmacKey, []string{token}, c.set))(t)
		rt := pooled(t, newStore(), pool, outgoing.Options{Base: describing{}}, sash.PerMinute(9))
		_, err := get(t.Context(), rt)
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "[credential]") {
			t.Errorf("%s: %v", name, err)
		}
		for ; err != nil; err = errors.Unwrap(err) {
			printed := fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
			for _, form := range c.forms {
				if strings.Contains(printed, form) {
					t.Errorf("%s: %q is in %s", name, form, printed)
				}
			}
		}
	}
}

// describing is a transport whose error has the request in several forms, and is another error.
type describing struct{}

func (describing) RoundTrip(req *http.Request) (*http.Response, error) {
	dump, _ := json.Marshal(req.Header)
	return nil, fmt.Errorf("%v %q %s %v %v %s: %w", req.Header, req.Header, dump, req.URL, req.URL.Query(),
		url.PathEscape(req.URL.Query().Get("key")), io.ErrUnexpectedEOF)
}
