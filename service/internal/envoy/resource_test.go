package envoy

import (
	"testing"

	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash/service/internal/config"
)

// resources packs messages as a management server sends them.
func resources(t *testing.T, messages ...proto.Message) []*anypb.Any {
	t.Helper()
	return response(t, "1", messages...).GetResources()
}

// perDay is a descriptor with a limit.
func perDay(key, value string, units uint32) *rls.RateLimitDescriptor {
	return &rls.RateLimitDescriptor{Key: key, Value: value, RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_DAY, RequestsPerUnit: units}}
}

// A management server sends strings, which are no numbers, booleans or anything else.
func TestStringsOfAManagementServerAreStrings(t *testing.T) {
	for _, text := range []string{"1e3", ".5_0", "010", "yes", "~", "<<", "!!binary x", "- a", "a: b", "#", "é\n\t\"'\\", "&a", "*a"} {
		key := text
		if text == "*a" {
			key = "k" // where it is a wildcard, as it should
		}
		cfg, err := Source{}.read(resources(t, &rls.RateLimitConfig{Name: "r", Domain: text, Descriptors: []*rls.RateLimitDescriptor{perDay(key, text, 1)}}))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if found, err := cfg.Find(text, []config.Entry{{Key: key, Value: text}}); found.Rule == nil || err != nil {
			t.Errorf("%q: %v, %v", text, found.Rule, err)
		}
	}
}

func TestNewerFieldsOfAManagementServer(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"service": map[string]any{"name": "a", "tags": []any{1.5, nil}}})
	if err != nil {
		t.Fatal(err)
	}
	quota := perDay("k", "", 5)
	quota.QuotaMode, quota.Metadata = true, metadata
	cfg, err := Source{}.read(resources(t, &rls.RateLimitConfig{Name: "r", Domain: "d", Descriptors: []*rls.RateLimitDescriptor{quota}}))
	if err != nil {
		t.Fatal(err)
	}
	found, err := cfg.Find("d", []config.Entry{{Key: "k", Value: "x"}})
	rule := found.Rule
	if err != nil || rule == nil || !rule.Quota || rule.Limits[0].Units != 5 {
		t.Errorf("%+v, %v", rule, err)
	}
	sent, err := structpb.NewStruct(rule.Metadata)
	if w := cfg.Warnings(); err != nil || !proto.Equal(sent, metadata) || len(w) != 0 {
		t.Errorf("metadata %v, %v, warnings %q", sent, err, w)
	}
}
