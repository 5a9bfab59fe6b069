package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/serve"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/verify"
)

// ran runs the command in an environment, and returns its exit code and all that it says.
func ran(t *testing.T, env map[string]string, args ...string) (code int, said string) {
	t.Helper()
	var out strings.Builder
	code = Run(t.Context(), args, nil, &out, &out, func(name string) string { return env[name] })
	return code, out.String()
}

// The help of sash serve is read as a whole.
func TestHelpOfServe(t *testing.T) {
	code, help := ran(t, nil, "serve", "--help")
	if words, flags := len(strings.Fields(help)), strings.Count(help, "\n      --"); code != 0 || words > 900 || flags > 30 {
		t.Errorf("exit %d, %d words, %d flags", code, words, flags)
	}
}

func TestHelpFitsIntoAHundredColumns(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var out strings.Builder
		cmd.SetOut(&out)
		servertest.Check(t, cmd.Help())
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > helpColumns {
				t.Errorf("%s has a line of %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).root())
}

func TestWhatMayBeAPasswordIsNotShown(t *testing.T) {
	const url = `redis://:se"cret@127.0.0.1:1`
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"doctor", url}, "give the address with --redis"},
		{[]string{"doctor", "secret"}, "give the address with --redis"},
		{[]string{"verify", url}, "give the address with --redis"},
		{[]string{"verify", "--json", url}, "give the address with --redis"},
		{[]string{url}, "not shown"},
		{[]string{"user:se\"cret@127.0.0.1:1"}, "not shown"},
		{[]string{"serve", url}, "not shown"},
		{[]string{"doctor", "--budget", url}, "not shown"},
		{[]string{"doctor", "--budget=" + url}, "not shown"},
		{[]string{"allow", "--limit", url, "k"}, "not shown"},
	} {
		if code, said := ran(t, nil, c.args...); code != exitError || !strings.Contains(said, c.say) || strings.Contains(said, "cret") {
			t.Errorf("%q: exit %d, %s", c.args, code, said)
		}
	}
	if _, said := ran(t, nil, "allow", "--limit", "x/day@Mars/Base", "k"); !strings.Contains(said, "x/day@Mars/Base") {
		t.Errorf("a limit with a zone is not shown: %s", said)
	}
}

// served returns the options of sash serve in an environment, with flags.
func served(t *testing.T, env map[string]string, flags ...string) (serve.Options, error) {
	t.Helper()
	a := &app{env: func(name string) string { return env[name] }, err: &bytes.Buffer{}}
	s, cmd := &serving{}, &cobra.Command{}
	s.flags(cmd)
	servertest.Check(t, cmd.Flags().Parse(flags))
	return a.options(s, false, cmd.Flags().Changed)
}

func TestFlagsTakePrecedence(t *testing.T) {
	opts, err := served(t, map[string]string{"RUNTIME_ROOT": "/data", "LOG_FORMAT": "json", "SASH_ENVOY_COMPATIBLE": "true",
		"SASH_TOKEN_KEY": strings.Repeat("o", 32) + ", " + strings.Repeat("n", 32)}, "--json=false", "--config", "a.yaml", "--addr", ":1")
	if err != nil {
		t.Fatal(err)
	}
	defaults := config.Defaults{Algorithm: sash.FixedWindow, CountRefused: true, HeadersOnly: true}
	if keys := string(bytes.Join(opts.TokenKeys, nil)); keys != strings.Repeat("o", 32)+strings.Repeat("n", 32) || opts.HTTP != ":1" || opts.GRPC != "0.0.0.0:8081" || opts.Protocol.Counting == nil ||
		opts.Config != (config.Source{Path: "a.yaml", Defaults: defaults}) {
		t.Errorf("%+v", opts)
	}
	if _, ok := opts.Log.Handler().(*slog.TextHandler); !ok {
		t.Errorf("the log is a %T", opts.Log.Handler())
	}
	if _, err := served(t, map[string]string{"SASH_LOG_FORMAT": "xml"}); err == nil || !strings.Contains(err.Error(), "SASH_LOG_FORMAT") {
		t.Errorf("a wrong format: %v", err)
	}
}

// TestAnInterruptedBookingIsGivenBack states that a command that is interrupted while Redis decides ends when it has given
// back what Redis booked.
func TestAnInterruptedBookingIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := late{memstore.New(nil), make(chan struct{})}
		l := servertest.Must(sash.New(store, nil, sash.PerHour(1)))(t)
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- new(app).hold(ctx, &subject{wait: time.Minute, timeout: 2 * time.Second}, l, []sash.Subject{{Key: "k", Cost: 1}}, nil)
		}()
		synctest.Wait()
		interrupt()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("the command ends while Redis decides")
		}
		close(store.decides)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("%d of 1 are left: %v", res.Remaining, err)
		}
	})
}

// A token whose charge has left is no more settled, before Redis is asked.
func TestAnExpiredReservation(t *testing.T) {
	const url = "127.0.0.1:1"
	to := servertest.Must((&app{redis: url, env: func(string) string { return "" }}).shared())(t)
	defer to.client.Close()
	policy := servertest.Must(sash.NewPolicy(nil, sash.PerMinute(5)))(t)
	for ago, say := range map[time.Duration]string{time.Hour: "has expired", 30 * time.Second: "redis at " + url} {
		token := to.tokens().Seal(decide.Reservation{Key: "k", Units: 1, At: time.Now().Add(-ago), Policy: policy, ID: "id"})
		if code, said := ran(t, nil, "settle", "--redis", url, token, "1"); code != exitError || !strings.Contains(said, say) {
			t.Errorf("charged %v ago: exit %d, %s", ago, code, said)
		}
	}
}

// late is a store that decides when it is let.
type late struct {
	*memstore.Store
	decides chan struct{}
}

func (s late) Do(ctx context.Context, b *driver.Batch) error {
	<-s.decides
	return s.Store.Do(ctx, b)
}

// What serve refuses check refuses in the same environment, with the same text, and warns of in one that does not name a Redis.
func TestCheckAppliesTheRulesOfServe(t *testing.T) {
	leases := "domain: d\ndescriptors:\n"
	for i := range 257 {
		leases += fmt.Sprintf("- {key: k%d, lease: %dms, limits: [500/1m]}\n", i, i+1)
	}
	rule := func(text string) string { return "domain: d\ndescriptors:\n- {key: a, " + text + "}\n" }
	for file, c := range map[string]struct {
		warns string // where the environment names no Redis; empty is an error there, too
		redis string // the error on a Redis
	}{
		"":                                      {"", "no domain"},
		"domain: d\nx: 1":                       {"", "x"},
		rule("limits: [5/1x]"):                  {"", "5/1x"},
		rule("unit: second"):                    {"", "unit"},
		rule("limits: [5/1m], cost: 6"):         {"", "6"},
		rule("limits: [5/1m], lease: 5m"):       {"", "lease"},
		rule("limits: [500/1m], scope: global"): {"--home", "--home"},
		rule("limits: [5/1m], secret: true"):    {"on Redis", "set SASH_SECRET_KEYS"},
		rule("limits: [5/1m], guard: true, on_unavailable: open"): {"", "open"},
		rule("limits: [5/1m]") + rule("limits: [5/1m]"):           {"", "d"},
		leases: {"on Redis", "256 different leases"},
	} {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		servertest.Check(t, os.WriteFile(path, []byte(file), 0o600))
		for _, redis := range []string{"", "redis://127.0.0.1:1"} {
			env := map[string]string{redisVariable: redis}
			code, text := ran(t, env, "config", "check", path)
			if redis == "" && c.warns != "" {
				if code != 0 || !strings.Contains(text, "warning: ") || !strings.Contains(text, c.warns) || !strings.Contains(text, c.redis) {
					t.Errorf("%.80s: %d, %s; want a warning", file, code, text)
				}
				continue
			}
			served, said := ran(t, env, "serve", "--config", path, "--addr", "nowhere")
			if code != 2 || served != 2 || !strings.Contains(text, c.redis) || !strings.HasSuffix(said, text) {
				t.Errorf("%.80s on %q: check says %d, %s; serve %d, %s; want %q", file, redis, code, text, served, said, c.redis)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	servertest.Check(t, os.WriteFile(file, []byte(rule("secret: true, limits: [5/1m]")), 0o600))
	const keys = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
	for _, c := range []struct {
		env  map[string]string
		code int
		says string
	}{
		{map[string]string{redisVariable: "redis://127.0.0.1:1", secretKeysVariable: keys}, 0, "secret a"},
		{map[string]string{secretKeysVariable: "short"}, 2, secretKeysVariable},
		{map[string]string{homeVariable: "redis://127.0.0.1:1", secretKeysVariable: keys}, 0, "needs --redis too"},
		{map[string]string{"SASH_ALGORITHM": "fixed-window"}, 0, "by fixed-window"},
		{map[string]string{"SASH_ALGORITHM": "none"}, 2, "SASH_ALGORITHM"},
	} {
		if code, said := ran(t, c.env, "config", "check", file); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%v: %d, %s", c.env, code, said)
		}
	}
}

// The filter of quota has the rules with a lease, denies what has no quota, and is never one that ends Envoy.
func TestConfigEnvoyPrintsTheFilterOfQuota(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	rules := "domain: d\ndescriptors:\n- {key: x-user, lease: 2s, limits: [50/1m], descriptors: [{key: x-plan, value: free, lease: 2s, limits: [50/1m]}]}\n" +
		"- {key: x-short, lease: 1s, limits: [50/1m]}\n- {key: x-none, limits: [50/1m]}\n- {key: remote_address, lease: 2s, limits: [50/1m]}\n" +
		"- {key: x-ai, lease: 2s, limits: [50/1m], tokens: {format: openai}}\n"
	servertest.Check(t, os.WriteFile(file, []byte(rules), 0o600))
	run := func(args ...string) (int, string) {
		return ran(t, nil, append([]string{"config", "envoy", file}, args...)...)
	}
	code, text := run("--quota")
	deep, shallow := strings.Index(text, "and_matcher"), strings.LastIndex(text, "predicate:")
	if code != 0 || deep < 0 || deep > shallow || strings.Count(text, "- on_match") != 2 || strings.Count(text, "blanket_rule: DENY_ALL") != 4 ||
		strings.Contains(text, "ALLOW_ALL") || strings.Contains(text, "token_bucket") || strings.Count(text, "# Left out is") != 4 ||
		strings.Count(text, "expired_assignment_behavior_timeout: 31536000s") != 2 {
		t.Errorf("%d, %s", code, text)
	}
	if code, text := run("--quota", "--no-assignment", "allow"); code != 0 || strings.Count(text, "ALLOW_ALL") != 2 || strings.Count(text, "DENY_ALL") != 2 {
		t.Errorf("allow: %d, %s", code, text)
	}
	for _, args := range [][]string{{}, {"--quota", "--no-assignment", "token_bucket"}, {"--quota", "--domain", "other"}} {
		if code, text := run(args...); code != 2 {
			t.Errorf("%v: %d, %s", args, code, text)
		}
	}
}

// Nobody who writes to a log waits for its reader, and what is read in time is whole and in order.
func TestALogThatNobodyReadsKeepsNobodyWaiting(t *testing.T) {
	r, w := io.Pipe()
	log := newLossy(w)
	written := make(chan struct{})
	go func() {
		for i := range mostLines + 100 {
			_, _ = fmt.Fprintf(log, "line %d\n", i)
		}
		log.end(time.Millisecond)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
	var read bytes.Buffer
	all := make(chan error)
	go func() { _, err := read.ReadFrom(r); all <- err }()
	log.end(10 * time.Second)
	_ = w.Close()
	<-all
	if text := read.String(); !strings.HasPrefix(text, "line 0\n") || !strings.Contains(text, "are lost") {
		t.Errorf("%.200q", text)
	}
}

// What is printed says no more than what was checked.
func TestWhatVerifySays(t *testing.T) {
	for name, c := range map[string]struct {
		doubtful, unanswered int
		say, not             string
	}{
		"every call was answered":  {0, 0, "every retry time was exact\n", "came after a call without an answer"},
		"some calls had no answer": {3, 2, "2 of 5 refusals were right, with exact retry times;\n  the other 3 came after a call without an answer", "every retry time"},
	} {
		v := verdict{Seed: 42, Workers: 3, Report: verify.Report{Admitted: 7, Refused: 5, Doubtful: c.doubtful, Unanswered: c.unanswered}}
		var out, answer strings.Builder
		if a := (&app{out: &out}); a.judged(&v) != nil || !strings.HasPrefix(out.String(), "kept: ") || !strings.Contains(out.String(), c.say) ||
			strings.Contains(out.String(), c.not) || !strings.Contains(out.String(), "seed 42") || !strings.Contains(out.String(), "7 admitted") {
			t.Errorf("%s: %s", name, out.String())
		}
		if err := json.NewEncoder(&answer).Encode(&v); err != nil || !strings.HasPrefix(answer.String(), `{"verdict":"kept"`) {
			t.Errorf("%s: %s, %v", name, answer.String(), err)
		}
	}
}

// A history of calls is judged by a limit: three units were admitted at once, and the fourth was refused.
func TestVerifyJudgesAHistory(t *testing.T) {
	var calls strings.Builder
	for i, admitted := range []bool{true, true, true, false} {
		fmt.Fprintf(&calls, `{"key": "user_7", "sent": %d, "received": %[1]d, "admitted": %v}`+"\n", i, admitted)
	}
	for args, want := range map[string]struct {
		code int
		say  string
	}{
		"--limit 2/1h": {exitRefused, "violated: 1 of 1 key\n  over the limit: \"user_7\" was admitted 3 units in the 1h0m0s that end at 1970-01-01T00:00:02.000000Z, " +
			"and the limit is 2/1h; 1 admission went over\n  limits 2/1h\n"},
		"--limit 2/1h --json": {exitRefused, `"over_admitted":1`},
		"--limit 3/1h":        {exitAllowed, "kept: no window held more than its limit, no call was refused that certainly had room\n"},
		"--limit 9/1h":        {exitRefused, "refused with room: 1 times; the first, of 1 unit of \"user_7\" at 1970-"},
	} {
		var out strings.Builder
		line := append([]string{"verify", "--history", "-"}, strings.Fields(args)...)
		code := Run(t.Context(), line, strings.NewReader(calls.String()), &out, &out, func(string) string { return "" })
		if code != want.code || !strings.Contains(out.String(), want.say) {
			t.Errorf("%s: exit %d, %s; want %d, %q", args, code, out.String(), want.code, want.say)
		}
	}
}
