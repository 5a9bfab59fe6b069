// Package gobench measures decisions in this process: memstore beside other limiters in Go.
package gobench

import (
	"context"
	"fmt"
	"time"

	"example.com/sash"
	"example.com/sash/memstore"
)

// A contender is a way to limit in this process.
type contender struct {
	name  string
	exact bool // never more than the limit in any sliding window, and no refusal with room
	// open returns a limiter of units per window for every key. Several windows are for contenders
	// that know them; multi says so.
	open  func(limits ...sash.Limit) limiter
	multi bool
	waits bool // allow waits until there is room
	rival bool // sash should be no slower
	keyed bool // a library that does less, for any key
}

// A limiter decides for one unit. Close ends what it started.
type limiter interface {
	allow(key string) bool
	close()
}

// ours is a Limiter over memstore, called as users call it.
type ours struct{ limiter *sash.Limiter }

func openOurs(limits ...sash.Limit) limiter {
	l, err := sash.New(memstore.New(nil), nil, limits...)
	if err != nil {
		panic(fmt.Sprintf("gobench: %v", err)) // a limit of this program is wrong
	}
	return ours{l}
}

func (o ours) allow(key string) bool {
	res, err := o.limiter.Allow(context.Background(), key)
	return err == nil && res.Allowed
}

func (o ours) close() {}

func contenders() []contender {
	return []contender{
		{name: "sash over memstore", exact: true, open: openOurs, multi: true},
		{name: "slice log by hand", exact: true, open: openSliceLog, rival: true},
		{name: "ring log by hand (floor)", exact: true, open: openRingLog},
		{name: "certmagic ring buffer (Wait)", open: openCertmagic, waits: true, rival: true},
		{name: "x/time/rate a key (token bucket)", open: openTokenBucket, keyed: true},
		{name: "go-limiter memorystore (fixed window)", open: openGoLimiter, keyed: true},
		{name: "throttled memstore (GCRA)", open: openThrottled, keyed: true},
	}
}

// every returns the only limit of a contender that knows one.
func every(limits []sash.Limit) (units int, window time.Duration) {
	return int(limits[0].Units), limits[0].Window
}
