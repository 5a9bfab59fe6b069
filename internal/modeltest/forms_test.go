package modeltest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
)

// recordForms is for whoever gives a value another form.
var recordForms = flag.String("forms.record", "", "add keys of new names to testdata/forms.txt, under this name of the build")

// A formKey is a key as a build wrote it: SET and the value, ZADD and scores with members, or HSET and fields with values.
type formKey struct {
	build, name, command string
	args                 []string
}

// writeForms makes calls of every kind, and returns the keys that result, in the order of their names.
func writeForms(t *testing.T, store *redisstore.Store, client *redis.Client) (keys []formKey) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range sash.Algorithms() {
		policy := newPolicy(t, options(a), sash.PerHour(10))
		for _, id := range []string{"one", "two"} {
			_, err := store.DecideOnce(ctx, id, driver.Request{Key: "k", Cost: 2, Policy: policy})
			must(err)
		}
		reserved := driver.Request{Key: "reserved", Cost: 3, Policy: policy, MaySettle: true}
		answer, err := store.Decide(ctx, reserved)
		must(err)
		must(store.Settle(ctx, driver.Settlement{Request: reserved, At: answer.At, Source: answer.Source, Units: 1, ID: "settled"}))
		if store.Books(policy) {
			for range 3 {
				_, err := store.Decide(ctx, driver.Request{Key: "booked", Cost: 6, Policy: policy, Within: driver.MaxAhead})
				must(err)
			}
		}
		blocks := *policy
		blocks.Block = driver.Block{Refusals: 1, Window: 60e6, Length: 60e6}
		for range 2 {
			_, err := store.Decide(ctx, driver.Request{Key: "blocked", Cost: 10, Policy: &blocks})
			must(err)
		}
	}
	_, err := store.CoolDown(ctx, "cooled", driver.CoolDown{Length: 60e6})
	must(err)
	names, err := client.Keys(ctx, "*").Result()
	must(err)
	slices.Sort(names)
	for _, name := range names {
		key := formKey{name: name, command: "SET"}
		if kind := client.Type(ctx, name).Val(); kind == "zset" {
			key.command = "ZADD"
			for _, z := range client.ZRangeWithScores(ctx, name, 0, -1).Val() {
				key.args = append(key.args, strconv.FormatFloat(z.Score, 'f', -1, 64), z.Member.(string))
			}
		} else {
			key.args = []string{client.Get(ctx, name).Val()}
		}
		keys = append(keys, key)
	}
	return keys
}

const formsFile = "testdata/forms.txt"

// readForms returns the keys of earlier builds.
func readForms(t *testing.T) (keys []formKey) {
	t.Helper()
	file, err := os.Open(formsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		key := formKey{build: words[0], command: words[1], name: words[2]}
		for _, word := range words[3:] {
			arg, err := hex.DecodeString(word)
			if err != nil {
				t.Fatal(err)
			}
			key.args = append(key.args, string(arg))
		}
		keys = append(keys, key)
	}
	return keys
}

// recordForm adds a key.
func recordForm(t *testing.T, key formKey) {
	t.Helper()
	line := fmt.Sprint(*recordForms, " ", key.command, " ", key.name)
	for _, arg := range key.args {
		line += " " + hex.EncodeToString([]byte(arg))
	}
	file, err := os.OpenFile(formsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(file, line)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// Instances of two builds share a Redis during an upgrade, and neither rejects a key of the other's: a key that both name
// alike has the same value in both. The values of a build are those of writeForms.
func TestKeyNamesCarryTheFormOfTheirValues(t *testing.T) {
	server := redistest.Start(t)
	store, _, scripts := virtual(t, server.Addr(), nil)
	written := writeForms(t, store, scripts.client)
	old := readForms(t)
	for _, key := range written {
		known := false
		for _, other := range old {
			if other.name != key.name {
				continue
			}
			known = true
			if other.command != key.command || !slices.Equal(other.args, key.args) {
				t.Errorf("%s is a key of build %s, and this build writes another value under the same name. Give the form another number "+
					"(the constants above tags in redisstore.go), and add the keys with -forms.record. If you are sure that each build reads "+
					"what the other writes, replace the lines of build %s instead.\n%s %q\n%s %q", key.name, other.build, other.build,
					other.command, other.args, key.command, key.args)
			}
		}
		switch {
		case known:
		case *recordForms == "":
			t.Errorf("%s is a name of no build in %s: add it with -forms.record", key.name, formsFile)
		default:
			recordForm(t, key)
		}
	}

	server.Must(t, "FLUSHALL")
	for _, key := range readForms(t) {
		server.Must(t, "DEL", key.name)
		server.Must(t, append([]string{key.command, key.name}, key.args...)...)
		server.Must(t, "PEXPIRE", key.name, "7200000")
	}
	for _, a := range sash.Algorithms() {
		store, _, _ := virtual(t, server.Addr(), nil)
		policy := newPolicy(t, options(a), sash.PerHour(10))
		for _, id := range []string{"one", "two", "three"} {
			want := map[string]int64{"one": 6, "two": 6, "three": 4}[id]
			got, err := store.DecideOnce(t.Context(), id, driver.Request{Key: "k", Cost: 2, Policy: policy})
			if err != nil || got.Remaining() != want {
				t.Errorf("%s: %d units remain after %q, not %d; %v", store.Key("k", policy), got.Remaining(), id, want, err)
			}
		}
		for key, want := range map[string]int64{"reserved": 9, "blocked": 0} {
			got, err := store.Decide(t.Context(), driver.Request{Key: key, Policy: policy})
			if err != nil || got.Remaining() != want {
				t.Errorf("%s: %d units remain, not %d; %v", store.Key(key, policy), got.Remaining(), want, err)
			}
		}
	}
}
