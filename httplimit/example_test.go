package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"time"

	"example.com/sash"
	"example.com/sash/httplimit"
	"example.com/sash/memstore"
)

// An API with 60 requests a minute for each client address. The prefix keeps it apart from other limiters on
// the store.
func Example() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	store := memstore.New(nil)

	limiter, err := sash.New(store, &sash.Options{Prefix: "api"}, sash.PerMinute(60))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.PeerAddress, &httplimit.Options{
		OnError: func(r *http.Request, err error) { slog.ErrorContext(r.Context(), "limit", "error", err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{Addr: ":8080", Handler: limit(mux)} // 429 with Retry-After, RateLimit fields on every answer

	w := httptest.NewRecorder()
	server.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
	fmt.Println(w.Header().Get("RateLimit"))
	// Output:
	// 200 "60/1m";q=60;w=60
	// "60/1m";r=59;t=60
}

// Customers by their API key, with a limit of their own for writes, and all customers together. A
// request without an API key counts for its address. The API keys are not checked yet, so a client could
// invent new ones all the time: the layer for the address bounds that.
func ExampleNewLayers() {
	hmacKey := []byte("32 bytes that all instances know")
	client, err := httplimit.NewClientAddress(&httplimit.AddressOptions{
		Header:  "X-Forwarded-For",
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // our proxies
	})
	if err != nil {
		log.Fatal(err)
	}
	apiKey, err := httplimit.APIKey("X-API-Key", hmacKey)
	if err != nil {
		log.Fatal(err)
	}
	customer := httplimit.FirstOf(apiKey, client.Key)

	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "api"}, sash.PerSecond(500))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{
		{Name: "address", Key: client.Key, Limits: []sash.Limit{sash.PerMinute(1000)}},
		{Name: "customer", Key: customer, Limits: []sash.Limit{sash.PerMinute(300)}},
		{Name: "write", Key: customer, Limits: []sash.Limit{sash.PerMinute(1)}, Match: httplimit.Writes},
		{Name: "total", Key: httplimit.Shared("total")},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	api := limit(http.NotFoundHandler())
	for range 2 {
		r := httptest.NewRequest("POST", "/orders", nil)
		r.Header.Set("X-API-Key", "k-1")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// 404 404 page not found
	// 429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The request exceeds a quota","status":429,"detail":"Send it again in 60 seconds.","violated-policies":["write:1/1m"]}
}

// Users on plans: the limits come with each request. A user who changes to a larger plan keeps their charges and
// goes on at once.
func ExampleLayer_plans() {
	type user struct{ id, plan string }
	type userKey struct{} // of the context value that the authentication stored
	of := func(ctx context.Context) user { u, _ := ctx.Value(userKey{}).(user); return u }
	plans := map[string][]sash.Limit{
		"free": {sash.PerMinute(2)},
		"paid": {sash.PerSecond(20), sash.PerMinute(600)},
	}

	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "plans"}, sash.PerMinute(1)) // for a plan that is not listed
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{{
		Key:       httplimit.User(func(ctx context.Context) (string, bool) { u := of(ctx); return u.id, u.id != "" }),
		LimitsFor: func(r *http.Request) ([]sash.Limit, error) { return plans[of(r.Context()).plan], nil },
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}

	api := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	visit := func(u user) {
		r := httptest.NewRequest("GET", "/", nil)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
		fmt.Println(u.plan, w.Code, w.Header().Get("RateLimit-Policy"))
	}
	for range 3 {
		visit(user{"ann", "free"})
	}
	visit(user{"ann", "paid"})
	// Output:
	// free 200 "2/1m";q=2;w=60
	// free 200 "2/1m";q=2;w=60
	// free 429 "2/1m";q=2;w=60
	// paid 200 "20/1s";q=20;w=1, "600/1m";q=600;w=60
}

// Downloads: 100 an hour for an address, and at most two at once. A download whose process dies counts for half
// an hour. All processes that share the store count together.
func ExampleLayer_inFlight() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerHour(100))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{
		{Name: "downloads", Key: httplimit.PeerAddress},
		{Name: "connections", Key: httplimit.PeerAddress, Limits: []sash.Limit{sash.Every(2, 30*time.Minute)}, Charge: httplimit.InFlight},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}

	var file http.Handler
	visit := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		file.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	file = limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path { // the second comes while the first is running, and the third while both are
		case "/first":
			visit("/second")
		case "/second":
			w := visit("/third")
			fmt.Println("third:", w.Code, "Retry-After", w.Header().Get("Retry-After"))
			fmt.Println(w.Header().Get("RateLimit-Policy"))
		}
	}))
	fmt.Println("first:", visit("/first").Code)
	w := visit("/again")
	fmt.Println("again:", w.Code, w.Header().Get("RateLimit"))
	// Output:
	// third: 429 Retry-After 1
	// "downloads:100/1h";q=100;w=3600, "connections:2 at once";q=2;qu="concurrent-requests"
	// first: 200
	// again: 200 "downloads:100/1h";r=97;t=3600, "connections:2 at once";r=1
}

// A login that slows down guessing and that nobody can use to lock an owner out from another address.
//
// Failures count for the address, and for the account together with the address. There is no limit on
// the account alone: with one, anybody who knows a name could keep its owner out from anywhere. The owner at
// another address has a count of their own. So the address has to be the client's: with PeerAddress behind a
// proxy all clients have the proxy's address, and one could lock out all. Clients that share an address with
// an attacker, such as behind one NAT, share the limit per address. A success resets the failures of that
// account at that address, which are the owner's typing mistakes. It does not reset those of the address: an
// attacker would log in to an account of their own between guesses at others.
func ExampleLayer_failures() {
	limiter, err := sash.New(memstore.New(nil), &sash.Options{Prefix: "login"}, sash.Every(20, 10*time.Minute)) // or a store on Redis, for all instances
	if err != nil {
		log.Fatal(err)
	}
	client, err := httplimit.NewClientAddress(&httplimit.AddressOptions{
		Header:  "X-Forwarded-For",
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // our proxies; without any, nil instead of options
	})
	if err != nil {
		log.Fatal(err)
	}
	account := func(r *http.Request) (string, error) {
		name := strings.ToLower(strings.TrimSpace(r.PostFormValue("user"))) // the form in which the login compares names
		if name == "" {
			return "", httplimit.ErrNoKey
		}
		return sash.Key("account", name), nil
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{
		{Name: "address", Key: client.Key, Charge: httplimit.Failures},
		{
			Name: "account", Key: httplimit.Join(account, client.Key), Limits: []sash.Limit{sash.Every(3, 10*time.Minute)},
			Charge: httplimit.Failures, ResetOnSuccess: true,
		},
	}, &httplimit.Options{
		Dialect: httplimit.NoFields, // an attacker need not know what is left
		OnError: func(r *http.Request, err error) { slog.ErrorContext(r.Context(), "login limit", "error", err) },
	})
	if err != nil {
		log.Fatal(err)
	}

	login := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "correct horse" {
			http.Error(w, "wrong name or password", http.StatusUnauthorized)
		}
	}))
	try := func(address, password string) int {
		r := httptest.NewRequest("POST", "/login", strings.NewReader("user=ann&password="+password))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", address)
		w := httptest.NewRecorder()
		login.ServeHTTP(w, r)
		return w.Code
	}

	const attacker, owner = "203.0.113.66", "198.51.100.7"
	fmt.Println("guesses:", try(attacker, "1"), try(attacker, "2"), try(attacker, "3"), try(attacker, "4"))
	fmt.Println("even the right one, from there:", try(attacker, "correct+horse"))
	fmt.Println("the owner, after two mistakes:", try(owner, "x"), try(owner, "y"), try(owner, "correct+horse"))
	fmt.Println("and two more:", try(owner, "x"), try(owner, "y"), try(owner, "correct+horse"))
	// Output:
	// guesses: 401 401 401 429
	// even the right one, from there: 429
	// the owner, after two mistakes: 401 401 200
	// and two more: 401 401 200
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

// The code of docs/migrating/tollbooth.md.
func Example_migratingFromTollbooth() {
	mux := http.NewServeMux()
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerSecond(10))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.NewLayers(limiter, []httplimit.Layer{{Key: httplimit.PeerAddress, Match: httplimit.Writes}},
		&httplimit.Options{Dialect: httplimit.Draft06})
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("/hello", limit(http.HandlerFunc(hello)))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("RateLimit-Limit"), w.Header().Get("RateLimit-Remaining"))
	// Output: 200 10 9
}

// The code of docs/migrating/throttled.md.
func Example_migratingFromThrottled() {
	limiter, err := sash.New(memstore.New(nil), nil, sash.PerMinute(25))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.Path(httplimit.CleanOnly), &httplimit.Options{Dialect: httplimit.Draft06})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.HandlerFunc(hello))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("RateLimit-Remaining"))
	// Output: 200 24
}

// The code of docs/migrating/ulule-limiter.md.
func Example_migratingFromUlule() {
	rate, err := sash.ParseLimit("1000/1h")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sash.New(memstore.New(nil), nil, rate)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(limiter, httplimit.PeerAddress, &httplimit.Options{Dialect: httplimit.LegacyUnix})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit(http.HandlerFunc(hello))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Limit"), w.Header().Get("X-RateLimit-Remaining"))
	// Output: 200 1000 999
}
