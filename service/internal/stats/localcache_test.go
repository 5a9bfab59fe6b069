package stats

import (
	"strings"
	"testing"

	"example.com/sash/service/internal/decide"
)

func TestTheLocalCacheHasEnvoysNames(t *testing.T) {
	r := New(nil)
	r.Rule("d.user").Cached.Add(3)
	text := func() string {
		var b strings.Builder
		if err := r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := text(); strings.Contains(got, "local") {
		t.Errorf("without one there is\n%s", got)
	}
	r.Remember(decide.NewOverLimit(0))
	for _, want := range []string{
		"ratelimit.service.rate_limit.d.user.over_limit_with_local_cache: 3\n",
		"ratelimit.localcache.entryCount: 0\n", "ratelimit.localcache.lookupCount: 0\n",
		"ratelimit.localcache.hitCount: 0\n", "ratelimit.localcache.missCount: 0\n", "ratelimit.localcache.overwriteCount: 0\n",
		"ratelimit.localcache.evacuateCount: 0\n", "ratelimit.localcache.expiredCount: 0\n",
	} {
		if got := text(); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
