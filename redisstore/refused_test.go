package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/internal/drivertest"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
)

const (
	after7 = " script: 25b3209615a82311c4343b147a23923f4d94c920, on @user_script:1." // Redis 7 within a script
	after9 = " script: on @user_script:1."                                           // Valkey 9
	ahead6 = "ERR Error running script (call to f_25b3209615a82311c4343b147a23923f4d94c920): @user_script:12: "
)

func TestWhatTheServerRefuses(t *testing.T) {
	for said, want := range map[string]struct{ misconfigured, uncharged bool }{
		"NOAUTH Authentication required.":                                            {true, true},
		"WRONGPASS invalid username-password pair or user is disabled.":              {true, true},
		"NOPERM this user has no permissions to run the 'evalsha' command":           {true, true},
		"WRONGTYPE Operation against a key holding the wrong kind of value":          {true, true},
		"CROSSSLOT Keys in request don't hash to the same slot":                      {true, true},
		"NOSCRIPT No matching script. Please use EVAL.":                              {true, true},
		"ERR unknown command 'EVALSHA', with args beginning with: ":                  {true, true},
		"ERR DB index is out of range":                                               {true, true},
		"SASH the key sash:log3:k holds something that is not a log of this version": {true, true},
		"LOADING Redis is loading the dataset in memory":                             {false, true},
		"OOM command not allowed when used memory > 'maxmemory'.":                    {false, true},
		"READONLY You can't write against a read only replica.":                      {false, true},
		"NOREPLICAS Not enough good replicas to write.":                              {false, true},
		"CLUSTERDOWN The cluster is down":                                            {false, true},
		"ERR max number of clients reached":                                          {false, true},
		"dial tcp 127.0.0.1:1: connect: connection refused":                          {false, false},

		// Within a script: perhaps after a write.
		"ERR The user executing the script can't run this command or subcommand" + after7:                                     {true, false},
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + after7: {true, false},
		"WRONGTYPE Operation against a key holding the wrong kind of value" + after7:                                          {true, false},
		"ERR Unknown Redis command called from script" + after7:                                                               {true, false},
		"ERR user_script:1: attempt to index local 'x' (a nil value)" + after7:                                                {true, false},
		"ERR Error running script, Script killed by user with SCRIPT KILL." + after7:                                          {false, false},
		// Of its first write.
		"OOM command not allowed when used memory > 'maxmemory'." + after7: {false, true},
		"READONLY You can't write against a read only replica." + after7:   {false, true},
		"NOREPLICAS Not enough good replicas to write." + after7:           {false, true},

		ahead6 + "@user_script: 12: The user executing the script can't run this command or subcommand": {true, false},
		ahead6 + "@user_script: 12: Unknown Redis command called from Lua script":                       {true, false},
		ahead6 + "WRONGTYPE Operation against a key holding the wrong kind of value":                    {true, false},
		ahead6 + "Script killed by user with SCRIPT KILL...":                                            {false, false},
		ahead6 + "@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.":           {false, true},
		ahead6 + "@user_script: 12: -READONLY You can't write against a read only replica.":             {false, true},
	} {
		for _, text := range everyForm(said) {
			err := error(&sash.StoreError{Err: fmt.Errorf("goredisstore: log: %w", errors.New(text))})
			for _, err := range []error{err, errors.Join(errors.New("one more"), err)} {
				if got := redisstore.Misconfigured(err); got != want.misconfigured {
					t.Errorf("%s: Misconfigured is %v", text, got)
				}
				if got := redisstore.Uncharged(err); got != want.uncharged {
					t.Errorf("%s: Uncharged is %v", text, got)
				}
			}
		}
	}
	if redisstore.Misconfigured(nil) || redisstore.Uncharged(context.DeadlineExceeded) {
		t.Error("no error, or a caller who gave up, is misconfigured")
	}
}

// everyForm returns what the server said, as Valkey 9 says it, and both without "ERR ", which some clients cut off.
func everyForm(said string) []string {
	valkey := strings.Replace(said, after7, after9, 1)
	return []string{said, strings.TrimPrefix(said, "ERR "), valkey, strings.TrimPrefix(valkey, "ERR ")}
}

// Only errors about the value of a key are rejections of a store that works: not those that every key would get.
func TestWhatIsRejected(t *testing.T) {
	for said, rejected := range map[string]bool{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                           true,
		"WRONGTYPE Operation against a key holding the wrong kind of value" + after7:                  true,
		ahead6 + "WRONGTYPE Operation against a key holding the wrong kind of value":                  true,
		"SASH the key sash:log3:k holds something that is not a log of this version":                  true,
		"ERR user_script:43: attempt to compare nil with number" + after7:                             true,
		ahead6 + "user_script:43: attempt to compare nil with number":                                 true,
		"ERR user_script:9: bad argument #2 to 'unpack' (data string too short)" + after7:             true,
		"ERR value is not a valid float" + after7:                                                     true,
		"ERR user_script:9: attempt to call field 'unpack' (a nil value)" + after7:                    false,
		"ERR user_script:9: attempt to index global 'struct' (a nil value)" + after7:                  false,
		"ERR user_script:9: Script attempted to access nonexistent global variable 'struct'" + after7: false,
		"NOPERM this user has no permissions to access one of the keys used as arguments":             false,
		"ERR The user executing the script can't run this command or subcommand" + after7:             false,
		"OOM command not allowed when used memory > 'maxmemory'." + after7:                            false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                     false,
		"dial tcp 127.0.0.1:1: connect: connection refused":                                           false,
	} {
		for _, text := range everyForm(said) {
			server := failing{fmt.Errorf("goredisstore: log: %w", errors.New(text))}
			err := drivertest.Of(redisstore.New(server, nil)).Forget(t.Context(), "k", &driver.Policy{})
			if errors.Is(err, driver.ErrRejected) != rejected || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

// A failing server answers every script with an error.
type failing struct{ err error }

func (s failing) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return "", s.err
}
func (s failing) Cluster() bool { return false }

// Every name of a threshold is in a script, and every name in a script has a value.
func TestThresholdsAreWhatTheScriptsName(t *testing.T) {
	with := maps.Clone(threshold.Scripts)
	other := int64(987_000)
	for name := range with {
		other++
		with[name] = other
	}
	var texts strings.Builder
	for _, s := range redisstore.Scripts() {
		texts.WriteString(s.With(with).Text)
		if again := s.With(threshold.Scripts); *again != *s {
			t.Errorf("%s with its own thresholds is another script", s.Name)
		}
	}
	for name := range with {
		if !strings.Contains(texts.String(), with.Put(name)) {
			t.Errorf("no script has %s", name)
		}
	}
	if name := regexp.MustCompile(`\b[A-Z]+_[A-Z_]+\b`).FindString(texts.String()); name != "" {
		t.Errorf("%s has no value", name)
	}
}

// A server answers at once that there is room.
type server struct{}

var room = strings.Repeat("\x00", 8) + "\x00\x06\x0a\x24\x18\x1e\x40\x00" + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x01", 4)

func (server) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return room, nil
}

func (server) Cluster() bool { return false }

// What is sent has to be allocated: the key's name, the list of keys and the argument.
func TestADecisionAllocatesWhatItSends(t *testing.T) {
	for name, opts := range map[string]*sash.Options{
		"log":     nil,
		"buckets": {Algorithm: sash.SlidingBuckets, Resolution: 10 * time.Millisecond},
	} {
		l, err := sash.New(redisstore.New(server{}, nil), opts, sash.PerMinute(10))
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if res, err := l.Allow(t.Context(), "user:42"); err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
		}); n > 3 {
			t.Errorf("%s: %v allocations a decision, want 3", name, n)
		}
	}
}

// A restless server asks for other boundaries of the calendar each time.
type restless struct{ server }

func (restless) Run(context.Context, *redisstore.Script, []string, string) (string, error) {
	return strings.Repeat("\xff", 8) + strings.Repeat("\x00", 16), nil
}

// A call that finds no boundaries is rejected by itself: the error takes the store from no other call.
func TestACallWithoutBoundariesIsRejectedAlone(t *testing.T) {
	store := redisstore.New(restless{}, nil)
	policy, err := sash.NewPolicy(nil, sash.PerCalendar(10, sash.CalendarHour, nil))
	if err != nil {
		t.Fatal(err)
	}
	plain := driver.Request{Key: "k", Cost: 1, Policy: policy}
	booking, look := plain, plain
	booking.Within, look.Cost = time.Hour.Microseconds(), 0
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"a call":    func() error { _, err := driver.Decide(ctx, store, plain); return err },
		"a look":    func() error { _, err := driver.Decide(ctx, store, look); return err },
		"a booking": func() error { _, err := driver.Decide(ctx, store, booking); return err },
		"an ID":     func() error { _, err := drivertest.Of(store).Once(ctx, "id", booking); return err },
		"a batch":   func() error { _, err := drivertest.Of(store).Each(ctx, plain, plain); return err },
		"subjects": func() error {
			_, err := drivertest.Of(store).All(ctx, plain, driver.Request{Key: "l", Cost: 1, Policy: policy})
			return err
		},
		"a choice": func() error {
			_, _, err := drivertest.Of(store).Any(ctx, plain, driver.Request{Key: "l", Cost: 1, Policy: policy})
			return err
		},
		"a reward": func() error { _, err := drivertest.Of(store).GiveBack(ctx, plain); return err },
	} {
		if err := call(); !errors.Is(err, driver.ErrRejected) || redisstore.Misconfigured(err) || !strings.Contains(err.Error(), "repeat the call") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
