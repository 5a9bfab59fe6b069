package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func sum(token string) string {
	s := sha256.Sum256([]byte(token))
	return hex.EncodeToString(s[:])
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A world is a gate over a file, with its log, its refusals and its clock.
type world struct {
	*Gate
	file    string
	log     strings.Builder
	refused []string
}

func begin(t *testing.T, text string) *world {
	t.Helper()
	w := &world{file: filepath.Join(t.TempDir(), "access.yaml")}
	write(t, w.file, text)
	var err error
	w.Gate, err = Open(w.file, &Options{
		Refused: func(reason string) { w.refused = append(w.refused, reason) },
		Log:     slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// may asks whether the sender of a header has rights; an empty token sends none.
func (w *world) may(t *testing.T, token, domain string, need Right) error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/allow", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	known, err := w.Identify(r, "Authorization")
	if err != nil {
		return err
	}
	return w.Check(known.Context(), domain, need)
}

const listing = `
clients:
  - name: gateway
    tokens: [` + "%GATEWAY%" + `]
    allow: [decide, refund]
    domains: [d, e]
  - {name: batch, tokens: [` + "%BATCH%" + `, ` + "%NEXT%" + `], allow: [override]}
anonymous: {allow: [decide], domains: [d]}
`

func file() string {
	return strings.NewReplacer("%GATEWAY%", sum("gate"), "%BATCH%", strings.ToUpper(sum("batch")), "%NEXT%", sum("next")).Replace(listing)
}

func TestACallerMayDoWhatTheFileAllowsIt(t *testing.T) {
	w := begin(t, file())
	for _, c := range []struct {
		token, domain string
		need          Right
		err           error
		says          string
	}{
		{"gate", "d", Decide, nil, ""},
		{"gate", "e", Decide | Refund, nil, ""},
		{"gate", "", Refund, nil, ""},
		{"gate", "f", Decide, ErrNotAllowed, `the client gateway may not ask for decisions in the domain "f": give it allow: {"d": [decide, refund], "e": [decide, refund], "f": [decide]}`},
		{"gate", "d", Decide | Override, ErrNotAllowed, `give it allow: {"d": [decide, refund, override], "e": [decide, refund]}`},
		{"batch", "f", Override, nil, ""},
		{"next", "f", Override, nil, ""}, // the other of its tokens
		{"batch", "d", Decide, ErrNotAllowed, `give it allow: {"*": [override], "d": [decide, override]}`},
		{"", "d", Decide, nil, ""},
		{"", "e", Decide, ErrUnknown, `anonymous: {allow: {"d": [decide], "e": [decide]}}`},
		{"", "d", Refund, ErrUnknown, `anonymous: {allow: {"d": [decide, refund]}}`},
		{"guess", "d", Decide, ErrUnknown, "not one of those"},     // never anonymous
		{sum("gate"), "d", Decide, ErrUnknown, "not one of those"}, // the digest in the file is no token
	} {
		err := w.may(t, c.token, c.domain, c.need)
		if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q needs %s in %q: %v, want %v with %q", c.token, c.need.names(), c.domain, err, c.err, c.says)
		}
	}
	if want := []string{"decide", "override", "decide", "decide", "refund", "unauthenticated", "unauthenticated"}; !slices.Equal(w.refused, want) {
		t.Errorf("counted %v, want %v", w.refused, want)
	}
	if log := w.log.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "failure_mode_deny") {
		t.Errorf("the log has not one line: %s", log) // the other six are in the same second
	}
	if log := w.log.String(); strings.Contains(log, "guess") || strings.Contains(log, sum("gate")) {
		t.Errorf("a credential is in the log: %s", log)
	}
}

// The entry that an error suggests for the file gives its caller what it needs, and changes nothing for anyone else.
func TestTheRemedyOfAnErrorIsWhole(t *testing.T) {
	domains, tokens := []string{"d", "e", "f", "(request)"}, []string{"", "a", "b"}
	who := func(text string) map[string]Right {
		gate := begin(t, text)
		all := make(map[string]Right)
		for _, token := range tokens {
			for _, domain := range domains {
				for _, r := range rights {
					if gate.may(t, token, domain, r.right) == nil {
						all[token+" "+domain] |= r.right
					}
				}
			}
		}
		return all
	}
	remedy := regexp.MustCompile(`(anonymous: \{)?allow: (\{.*?\]\})`)
	b := "\n- {name: b, tokens: [" + sum("b") + "], allow: [decide]}\n"
	for _, entry := range []string{"allow: [decide, refund], domains: [d, e]", "allow: [decide]", "allow: {d: [decide, book], e: [refund]}", "allow: {e: [override]}"} {
		for _, token := range tokens[:2] {
			text := func(of, entry string) string {
				anonymous, a := "allow: {d: [decide]}", "allow: [decide]"
				if of == "" {
					anonymous = entry
				} else {
					a = entry
				}
				return "clients:\n- {name: a, tokens: [" + sum("a") + "], " + a + "}" + b + "anonymous: {" + anonymous + "}\n"
			}
			before := who(text(token, entry))
			for _, domain := range domains {
				for _, need := range []Right{Decide, Decide | Override, Refund, Decide | Override | LongWindows} {
					err := begin(t, text(token, entry)).may(t, token, domain, need)
					if err == nil {
						continue
					}
					said := remedy.FindStringSubmatch(err.Error())
					if said == nil {
						t.Fatalf("no remedy: %v", err)
					}
					after := who(text(token, "allow: "+said[2]))
					want := maps.Clone(before)
					want[token+" "+domain] |= need | Decide
					if !maps.Equal(after, want) {
						t.Errorf("%q needs %s in %q beside %s: %v gives %v, want %v", token, need.names(), domain, entry, err, after, want)
					}
				}
			}
		}
	}
	// Without a file everyone decides everywhere, and goes on.
	gate, err := Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = gate.Check(t.Context(), "(request)", Decide|Override)
	after := who("anonymous: {allow: " + remedy.FindStringSubmatch(err.Error())[2] + "}\n")
	if want := map[string]Right{" d": Decide, " e": Decide, " f": Decide, " (request)": Decide | Override}; !maps.Equal(after, want) {
		t.Errorf("%v gives %v, want %v", err, after, want)
	}
	// Of many domains the text names one.
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("domain-%d", i))
	}
	err = begin(t, "anonymous: {allow: [decide], domains: ["+strings.Join(many, ", ")+"]}").may(t, "", "d", Decide)
	if err == nil || len(err.Error()) > 500 || !strings.Contains(err.Error(), `{"d": [decide]}`) {
		t.Errorf("beside many domains: %v", err)
	}
}

// Without a file no caller needs credentials, and none gives units back or sets its own limit.
func TestWithoutAFileEveryoneMayOnlyDecide(t *testing.T) {
	gate, err := Open("", &Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Gate{nil, gate} {
		for need, want := range map[Right]error{Decide: nil, Refund: ErrNotAllowed, Override: ErrNotAllowed, Decide | Override: ErrNotAllowed} {
			w := &world{Gate: g}
			for _, token := range []string{"", "any"} {
				if err := w.may(t, token, "d", need); !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), "--access FILE") {
					t.Errorf("%s with the token %q: %v, want %v", need.names(), token, err, want)
				}
			}
			if err := g.Check(context.Background(), "d", need); !errors.Is(err, want) {
				t.Errorf("%s without a caller: %v, want %v", need.names(), err, want)
			}
		}
	}
}

// A token that is taken out of the file works for two looks at most, and a file that is wrong changes nothing. One that somebody is
// writing is read when it has not changed between two looks: the first half of it may be valid.
func TestTheFileIsReadAgainWhenItChanges(t *testing.T) {
	w := begin(t, file())
	change := func(text string) { write(t, w.file, text); w.look(); w.look() }
	change(strings.Replace(file(), sum("gate"), sum("new"), 1))
	if old, now := w.may(t, "gate", "d", Decide), w.may(t, "new", "d", Decide); !errors.Is(old, ErrUnknown) || now != nil {
		t.Errorf("the old token: %v, the new one: %v", old, now)
	}
	half, _, _ := strings.Cut(file(), "  - {name: batch")
	for range 5 {
		for _, text := range []string{half, file()} {
			write(t, w.file, text)
			w.look()
			if err := w.may(t, "batch", "f", Override); err != nil {
				t.Errorf("a client of the other half: %v", err)
			}
		}
	}
	for _, wrong := range []string{"clients: [{name: x, allow: [all]}]", "\t", "", "# nobody\n", "none"} {
		w.log.Reset()
		if change(wrong); wrong == "none" {
			if err := os.Remove(w.file); err != nil {
				t.Fatal(err)
			}
			w.log.Reset()
			w.look()
			w.look()
		}
		w.look()
		if err := w.may(t, "batch", "f", Override); err != nil {
			t.Errorf("after %q: %v", wrong, err)
		}
		if log := w.log.String(); strings.Count(log, "the last valid one stays in use") != 1 {
			t.Errorf("after %q the log has %s", wrong, log)
		}
	}
	change("anonymous: {allow: []}")
	if err := w.may(t, "", "d", Decide); !errors.Is(err, ErrUnknown) {
		t.Errorf("a caller without a token, of whom the file says nothing: %v", err)
	}
}

func TestAGateWatchesItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, file())
		ctx, end := context.WithCancel(t.Context())
		go func() { _ = w.Watch(ctx) }()
		write(t, w.file, strings.Replace(file(), sum("gate"), sum("new"), 1))
		time.Sleep(time.Second)
		if err := w.may(t, "new", "d", Decide); err != nil {
			t.Error(err)
		}
		end()
	})
}

func TestAWrongFileNamesTheLine(t *testing.T) {
	one := "clients:\n  - name: a\n    tokens: [" + sum("a") + "]\n    allow: [decide]\n"
	for text, says := range map[string]string{
		one + "  - name: a\n    tokens: [" + sum("b") + "]\n    allow: [decide]\n":                  `access.yaml:5: the client "a" is there already, on line 2`,
		one + "  - name: b\n    tokens: [" + strings.ToUpper(sum("a")) + "]\n    allow: [decide]\n": "access.yaml:6: the token",
		strings.Replace(one, "decide", "admin", 1):                                                  `access.yaml:4: there is no right "admin": there are decide, book, refund, override, long_windows`,
		strings.Replace(one, "[decide]", "decide", 1):                                               "access.yaml:4: allow, such as [decide] or {shop: [decide]}, must be a list",
		strings.Replace(one, sum("a"), "secret", 1):                                                 "access.yaml:3: a token is listed by its SHA-256, which has 64 digits",
		strings.Replace(one, "tokens", "token", 1):                                                  `access.yaml:3: unknown key "token"`,
		strings.Replace(one, "tokens: ["+sum("a")+"]", "domains: [d]", 1):                           `access.yaml:2: the client "a" has no tokens and no certificates`,
		strings.Replace(one, "    allow: [decide]\n", "", 1):                                        `access.yaml:2: the client "a" may do nothing`,
		"clients:\n  - certificates: [x]\n":                                                         "access.yaml:2: client 1 has no name",
		"anonymous:\n  allow: [decide]\n  allow: [refund]\n":                                        `access.yaml:3: duplicate key "allow", first on line 2`,
		"anonymous: {allow: {d: [all]}}":                                                            `access.yaml:1: there is no right "all"`,
		"anonymous: {allow: [decide], domains: ['*']}":                                              "access.yaml:1: * is all domains only in allow",
		"anonymous: {allow: {d: }}":                                                                 `access.yaml:1: "d" has no value`,
		"anonymous: {allow: {'': [decide]}}":                                                        "access.yaml:1: it must not be empty",
		"anonymous:\n  allow: {d: [decide]}\n  domains: [d]\n":                                      "access.yaml:2: allow has its domains already",
		"anonymous:\n  allow:\n    d: [decide]\n    d: [refund]\n":                                  `access.yaml:4: the domain "d" is there twice`,
		"anonymous: {allow: [decide]}\n---\nclients: []\n":                                          "must be one YAML document",
		"clients: [\n": "access.yaml:1: ",
		// A key without a value, where nothing could mean everything.
		one + "    domains:\n":                                        `access.yaml:5: "domains" has no value`,
		strings.Replace(one, "[decide]", "null", 1):                   `access.yaml:4: "allow" has no value`,
		one + "    domains: [d, ~]\n":                                 "access.yaml:5: it must not be empty",
		one + "    certificates: [\"\"]\n":                            "access.yaml:5: it must not be empty",
		one + "    certificates:\n":                                   `access.yaml:5: "certificates" has no value`,
		one + "anonymous:\n":                                          `access.yaml:5: "anonymous" has no value`,
		"clients:\nanonymous: {allow: [decide]}\n":                    `access.yaml:1: "clients" has no value`,
		strings.Replace(one, sum("a"), sum(""), 1):                    "access.yaml:3: this is the SHA-256 of an empty text",
		strings.Replace(one, sum("a"), strings.ToUpper(sum("\n")), 1): "access.yaml:3: this is the SHA-256 of an empty text",
		// A file that is empty, or written up to there, would refuse everyone.
		"":              "access.yaml: there are no clients and no anonymous",
		"clients: []\n": "access.yaml: there are no clients and no anonymous",
	} {
		_, err := parse("access.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s\n\tsays %v, want %s", text, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("a token in clear text is repeated: %v", err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.yaml"), nil); err == nil || !strings.Contains(err.Error(), "--access") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// An empty token is nobody's, whatever the file lists: Basic, and a scheme alone, come to one. A credential that is there
// twice is wrong, and a proxy has its own.
func TestWhatIsNoCredential(t *testing.T) {
	w := begin(t, file())
	all := *w.clients.Load()
	all.tokens[sha256.Sum256(nil)] = &client{name: "all", grant: grant{"": All}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/allow", nil)
	for header, wrong := range map[string][][]string{
		"Authorization": {
			{""}, {"Basic"}, {"Basic Z2F0ZQ=="}, {"Bearer"}, {"Bearer "}, {"Digest gate"}, {"gate"},
			{"Bearer gate", "Bearer gate"}, {"Bearer gate", "Basic x"},
		},
		ProxyHeader: {{""}},
	} {
		for _, values := range wrong {
			r.Header[header] = values
			if caller, err := w.Identify(r, header); !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: %q is %v, %v", header, values, caller, err)
			}
		}
	}
	r.Header = http.Header{"Authorization": {"Bearer of the client"}, ProxyHeader: {"gate"}}
	known, err := w.Identify(r, ProxyHeader)
	if err != nil || w.Check(known.Context(), "d", Refund) != nil {
		t.Errorf("a proxy with its token: %v", err)
	}
}

// A certificate with the names of two clients belongs to neither: the order would decide which client it is.
func TestACertificateIsOneClient(t *testing.T) {
	w := begin(t, "clients:\n- {name: edge, certificates: [a.example, B.example], allow: [decide, refund]}\n- {name: weak, certificates: [c.example], allow: [decide]}\n")
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"other.example", "A.example", "b.example"}, "edge"},
		{[]string{"c.example"}, "weak"},
		{[]string{"c.example", "a.example"}, ""},
		{[]string{"a.example", "c.example"}, ""},
		{[]string{"other.example"}, ""},
		{nil, ""},
	} {
		caller, err := w.identify(nil, &x509.Certificate{DNSNames: c.names}, "192.0.2.7:1")
		if c.want == "" && !errors.Is(err, ErrUnknown) || c.want != "" && (err != nil || caller.Name != c.want) {
			t.Errorf("%v: %v, %v, want %q", c.names, caller, err, c.want)
		}
	}
}

func TestClientsHaveTurnsByNameOrAddress(t *testing.T) {
	address := &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 5}
	shop, one, same, none := Caller{Name: "shop", From: address}, Caller{From: address}, Caller{From: "192.0.2.1:6"}, Caller{}
	if shop.Client() != "shop" || one.Client() != same.Client() || one.Client() == none.Client() || one.Client() == shop.Client() {
		t.Errorf("%q, %q, %q, %q", shop.Client(), one.Client(), same.Client(), none.Client())
	}
}

// An address counts without its port and its zone, one of IPv6 as its network, and all peers of a Unix socket as one.
func TestWhatCountsAsOneAddress(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.7:1": Party("192.0.2.7:2"), "[::ffff:192.0.2.7]:1": Party("192.0.2.7:1"),
		"[2001:db8::1]:1": Party("[2001:db8::ffff:2]:1"), "[fe80::1%eth0]:1": Party("[fe80::1%eth1]:1"), "@": Party(""),
	} {
		if Party(from) != want || Party("192.0.2.8:1") == want {
			t.Errorf("%s counts as %s", from, Party(from))
		}
	}
}
