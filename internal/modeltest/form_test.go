package modeltest

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
)

// Instances of two builds on one Redis, as during an upgrade, read each other's keys. The values are charges of 2 units for
// the IDs "one" and "two" of a limit of 10 an hour. A build that cannot read them gives its keys another name (tags in
// redisstore.go), and this test its values: builds that reject each other's refuse every subject until its key expires.
func TestAKeyOfAnEarlierBuildIsReadOrHasAnotherName(t *testing.T) {
	server := redistest.Start(t)
	const register = "06ddae8bc119bf000000000000007692c3ad3540bb8006ddae9da2bcbf003fc4ccfe745870e206ddae9da2bcbf00"
	log := "020100000004000000000000000000d693a40000000000000a06ddb038e861bf00000000000100000000000406ddae8bc119bf" +
		"00000000000000000000000006ddadb52d75bf06ddae8bc119bf" + "06ddae8bc119bf0000000004" + strings.Repeat("0", 2*(36+12+7)) + register
	for key, value := range map[string]string{
		"sash:log:k":         log,
		"sash:buckets-7ms:k": log,
		"sash:zset2:k":       "000000d693a40000000000000a06ddb038e861bf" + register,
		"sash:counter2:k":    "010106ddaf62640000000000d693a40006ddadb53cb80040100000000000000000000000000000" + register,
		"sash:fixed2:k":      "010106ddae9da2bcbf000000d693a40006ddadb53cb80040100000000000000000000000000000" + register,
		"sash:gcra2:k":       "010106ddaee195c1bf000000d693a40006ddae8bc119bf41d5752a000000000000000000000000" + register,
	} {
		client := newClient(server.Addr())
		defer client.Close()
		b, err := hex.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		if key == "sash:zset2:k" {
			err = client.ZAdd(t.Context(), key, redis.Z{Score: math.Inf(-1), Member: b}, redis.Z{Score: float64(start.UnixMicro()), Member: "4:4"}).Err()
			client.Expire(t.Context(), key, time.Hour)
		} else {
			err = client.Set(t.Context(), key, b, time.Hour).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range sash.Algorithms() {
		store, _, _ := virtual(t, server.Addr(), nil)
		policy, err := sash.NewPolicy(options(a), sash.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"one", "two", "three"} {
			want := map[string]int64{"one": 6, "two": 6, "three": 4}[id]
			got, err := store.DecideOnce(t.Context(), id, driver.Request{Key: "k", Cost: 2, Policy: policy})
			if err != nil || got.Remaining() != want {
				t.Errorf("%s: %d units remain after %q, not %d; %v", store.Key("k", policy), got.Remaining(), id, want, err)
			}
		}
	}
}
