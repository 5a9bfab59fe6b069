package decide

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
)

const secretRules = "domain: d\ndescriptors:\n- {key: token, secret: true, limits: [2/1h], descriptors: [{key: path, limits: [2/1h]}]}\n- {key: user, limits: [2/1h]}\n"

var oldKey, newKey = bytes.Repeat([]byte("o"), 32), bytes.Repeat([]byte("n"), 32)

func keyed(t *testing.T, keys ...[]byte) *Decider {
	t.Helper()
	d := live(t, secretRules)
	check(t, d.NameSecrets(keys...))
	return d
}

func hiddenFor(t *testing.T, d *Decider, entries string) []config.Entry {
	t.Helper()
	return must(d.Named("d", part(entries, 1).Entries))(t)
}

// Two instances with one key count a secret as one subject, and neither knows it by another name than its HMAC.
func TestASecretIsCountedByItsName(t *testing.T) {
	store := memstore.New(nil)
	cfg := parse(t, secretRules)
	name := "hmac-" + sash.Secret(oldKey, "s3cret")
	for i, want := range []string{"ok:1", "ok:0", "OVER:0"} {
		d := newDecider(t, cfg, store)
		check(t, d.NameSecrets(oldKey))
		asked := part("token=s3cret", 1)
		if got := ask(t, d, asked); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
		state, err := d.State(t.Context(), "d", part("token="+name, 1).Entries)
		if err != nil || state.Found.Key != "d:token:"+name || state.Answer.Limits[0].Remaining != max(int64(1-i), 0) {
			t.Errorf("by its name: %+v, %v", state, err)
		}
	}
}

// A client that sends a name is another subject, so whoever learns a name cannot use up its owner's limit.
func TestAClientCannotSendAName(t *testing.T) {
	d := keyed(t, oldKey)
	ask(t, d, part("token=s3cret", 2))
	name := hiddenFor(t, d, "token=s3cret")[0].Value
	want(t, "a client with the name", ask(t, d, part("token="+name, 1)), "ok:1")
	asked := part("token="+name, 1)
	asked.Named = true
	want(t, "an operator with the name", ask(t, d, asked), "OVER:0")
}

// After a rotation the subject is new, and exceptions under the older key still hold.
func TestExceptionsOutliveARotation(t *testing.T) {
	before := keyed(t, oldKey)
	until := time.Now().Add(time.Hour)
	all := []Exception{
		{Domain: "d", Entries: hiddenFor(t, before, "token=banned"), Until: until},
		{Domain: "d", Entries: hiddenFor(t, before, "token=raised"), Limits: limitsFrom(t, "9/1h"), Until: until},
		{Domain: "d", Entries: hiddenFor(t, before, "token=deep path=/x"), Until: until},
	}
	for name, d := range map[string]*Decider{"before": before, "after": keyed(t, newKey, oldKey), "when the old key is gone": keyed(t, newKey)} {
		d.Except(all)
		gone := name == "when the old key is gone"
		for entries, holds := range map[string]string{"token=banned": "OVER:0", "token=banned path=/y": "OVER:0", "token=deep path=/x": "OVER:0", "token=raised": "ok:8"} {
			expected := map[bool]string{true: "ok:1", false: holds}[gone]
			want(t, name+", "+entries, ask(t, d, part(entries, 1)), expected)
		}
		want(t, name+", others", ask(t, d, part("token=other", 1)), "ok:1")
		state, err := d.State(t.Context(), "d", part("token=raised", 1).Entries)
		if err != nil || (state.Override == nil) != gone {
			t.Errorf("%s: the override is %+v, %v", name, state.Override, err)
		}
	}
}

// Without keys nothing may be counted that other processes, or this one after a restart, would count apart.
func TestSecretsWithoutAKey(t *testing.T) {
	d := live(t, secretRules)
	if err := d.NameSecrets(); !errors.Is(err, ErrNoSecretKeys) || !strings.Contains(err.Error(), "d / token") {
		t.Errorf("a configuration with secrets: %v", err)
	}
	d = live(t, "domain: d\ndescriptors:\n- {key: user, limits: [1/1h]}\n")
	if err := d.NameSecrets(); err != nil {
		t.Fatalf("one without: %v", err)
	}
	if err := d.Use(keyed(t, oldKey).Config()); !errors.Is(err, ErrNoSecretKeys) {
		t.Errorf("a later configuration with secrets: %v", err)
	}
	want(t, "credentials that nothing limits", ask(t, d, part("authorization=s3cret", 1)), "ok")
	own := part("authorization=s3cret", 1)
	own.RequestLimit = &sash.Limit{Units: 1, Window: time.Hour}
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{own}, Lenient: true}); !errors.Is(err, ErrNoSecretKeys) || !errors.Is(err, sash.ErrInvalidLimit) {
		t.Errorf("a limit of the request's own: %v", err)
	}
	if _, err := d.Named("d", part("authorization=s3cret", 1).Entries); !errors.Is(err, ErrNoSecretKeys) {
		t.Errorf("an exception: %v", err)
	}
}

// Observers, and so logs, statistics and traces, see no secret, not even of requests that fail.
func TestObserversSeeNoSecret(t *testing.T) {
	d := keyed(t, oldKey)
	var seen []string
	d.Observe(func(_ context.Context, o *Observation) {
		for i := range o.Parts {
			for _, e := range o.Parts[i].Entries {
				seen = append(seen, e.Value)
			}
			seen = append(seen, o.Answers[i].Key, o.Answers[i].Metric)
		}
	})
	for _, req := range []Request{
		{Domain: "d", Parts: []Part{part("token=s3cret", 1), part("token=s3cret unknown=a", 1)}},
		{Domain: "d", Parts: []Part{part("user=a", 1), part("token=s3cret", 1000)}},
		{Domain: "d", Parts: []Part{part("token=s3cret", 1), part("user=a", 1)}, ID: "two parts"},
		{Domain: "e", Parts: []Part{part("authorization=s3cret", 1)}},
		{Domain: "d", Parts: []Part{{Entries: part("authorization=s3cret user=a", 1).Entries, Cost: 1, RequestLimit: &sash.Limit{Units: 1, Window: time.Hour}}}},
	} {
		_, _ = d.Decide(t.Context(), req)
	}
	if text := strings.Join(seen, " "); strings.Contains(text, "s3cret") || strings.Count(text, "hmac-") < 5 {
		t.Errorf("observed: %s", text)
	}
}

const quotas = `
domain: d
descriptors:
- {key: small, limits: [1/1m], quota_mode: true}
- {key: large, limits: [2/1m], quota_mode: true}
- {key: both, limits: [1/1m], quota_mode: true, shadow_mode: true}
- {key: a, limits: [5/1m]}
- {key: one, limits: [1/1m]}
- {key: two, limits: [2/1m]}
- {key: free, rate_limit: {unlimited: true}, quota_mode: true}
`

// Envoy's service, since February 2026, refuses a request when all of its quotas are over, or a limit that is none. Under
// QUOTA_MODE every descriptor is a quota, and one that no rule matches has room.
func TestAllQuotasOverRefuse(t *testing.T) {
	d, _ := decider(t, quotas)
	for i, step := range []struct {
		what  string
		parts []Part
		want  bool
	}{
		{"both have room", []Part{part("small", 1), part("large", 1)}, true},
		{"one has room", []Part{part("small", 1), part("large", 1)}, true},
		{"all are over", []Part{part("small", 1), part("large", 1)}, false},
		{"all are over beside a limit with room", []Part{part("a", 1), part("small", 1), part("large", 1)}, false},
		{"one alone is over", []Part{part("small", 1)}, false},
		{"an unlimited one is none", []Part{part("small", 1), part("free", 1)}, false},
		{"one that is tried out is none", []Part{part("small", 1), part("both", 1)}, false},
		{"one has room beside a limit without", []Part{part("a", 6), part("small=x", 1), part("small", 1)}, false},
		{"QUOTA_MODE: both have room", []Part{part("one", 1), part("two", 1)}, true},
		{"QUOTA_MODE: one has room", []Part{part("one", 1), part("two", 1)}, true},
		{"QUOTA_MODE: no rule matches one", []Part{part("one", 1), part("none", 1)}, true},
		{"QUOTA_MODE: all are over", []Part{part("one", 1), part("two", 1)}, false},
		{"QUOTA_MODE: one alone is over", []Part{part("one", 1)}, false},
	} {
		if got := allowed(t, d, Request{Parts: step.parts, Quota: strings.HasPrefix(step.what, "QUOTA_MODE")}); got != step.want {
			t.Errorf("step %d, %s: allowed %v", i+1, step.what, got)
		}
	}
	want(t, "what a was charged", ask(t, d, part("a", 0)), "ok:5")
}

// takeAfterLooks is a store in which another caller takes the last unit of a key after it was looked at.
type takeAfterLooks struct {
	*memstore.Store
	key   string
	taken bool
}

func (s *takeAfterLooks) Do(ctx context.Context, b *driver.Batch) error {
	err := s.Store.Do(ctx, b)
	if req := b.Ops[0].Request; b.Ops[0].Kind == driver.Charge && req.Key == s.key && req.Cost == 0 && !s.taken {
		s.taken = true
		req.Cost = 1
		_, err = driver.Decide(ctx, s.Store, req)
	}
	return err
}

func TestAQuotaThatEndsInBetweenGivesTheOthersBack(t *testing.T) {
	store := &takeAfterLooks{Store: memstore.New(nil), key: config.Key("d", part("small=x", 1).Entries)}
	d := deciderOn(t, quotas, store)
	_ = must(d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part("large=x", 2)}, Lenient: true}))(t)
	parts := []Part{part("a", 2), part("small=x", 1), part("large=x", 1)}
	want(t, "refused", ask(t, d, parts...), "ok:5 | OVER:0 | OVER:0")
	want(t, "a is not charged", ask(t, d, part("a", 0)), "ok:5")
}

func TestAQuotaThatIsNotDecidedIsNotRoom(t *testing.T) {
	d := deciderOn(t, quotas, &broken{Store: memstore.New(nil), prefix: config.Key("d", part("small", 1).Entries)})
	two := Request{Domain: "d", Parts: []Part{part("small", 1), part("large", 1)}, Lenient: true}
	for i, failed := range []bool{false, false, true} {
		if _, err := d.Decide(t.Context(), two); errors.Is(err, sash.ErrUnavailable) != failed {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
	if _, err := d.Decide(t.Context(), Request{Domain: "d", Parts: []Part{part("small", 1)}, Lenient: true}); !errors.Is(err, sash.ErrUnavailable) {
		t.Errorf("one quota alone: %v", err)
	}
}
