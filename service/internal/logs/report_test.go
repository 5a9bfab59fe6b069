package logs

import (
	"fmt"
	"testing"
)

// Only peers of many lines are proposed as proxies, in networks that are small and few.
func TestProxiesAreProposedWithCare(t *testing.T) {
	edges := func(format string, n int) map[string]int64 {
		all := make(map[string]int64)
		for i := range n {
			all[fmt.Sprintf(format, i)] = 50
		}
		return all
	}
	inventor := edges("10.0.0.%d", 2)
	inventor["203.0.113.9"], inventor["203.0.113.8"] = 9, 10 // of 10,000 lines
	v6 := edges("2001:db8::%x", 17)
	for want, tt := range map[string]struct {
		peers  map[string]int64
		behind int64
	}{
		"10.0.0.0/32,10.0.0.1/32,203.0.113.8/32": {inventor, 10_000},
		"10.0.0.0/24":                            {edges("10.0.0.%d", 200), 10_000},
		"2001:db8::/64":                          {v6, 850},
		"10.0.3.0/32":                            {edges("10.0.3.%d", 1), 50},
	} {
		if got := proxies(tt.peers, tt.behind); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, peers := range []map[string]int64{edges("10.0.%d.1", 17), edges("2001:db8:0:%x::1", 17), edges("10.0.0.%d", 1), edges("proxy-%d", 1)} {
		behind := int64(len(peers)) * 50
		if peers["10.0.0.0"] > 0 {
			behind = 50_001 // none has its share
		}
		if got := proxies(peers, behind); got != "NETWORKS" {
			t.Errorf("%v: %s", peers, got)
		}
	}
}
