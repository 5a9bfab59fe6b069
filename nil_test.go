package sash_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/httplimit"
	"example.com/sash/internal/window"
	"example.com/sash/lease"
	"example.com/sash/memstore"
	"example.com/sash/middleware"
	"example.com/sash/redisstore"
	"example.com/sash/stack"
	"example.com/sash/storetest"
)

type scripts struct{ redisstore.Scripter }

type observer struct{ sash.Observer }

// said returns what a constructor said by an error or a panic.
func said(construct func() error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	return fmt.Sprint(construct())
}

// Every constructor refuses a store, client or limiter that was never set, also where it has a type. internal/arch finds those
// that are missing here.
func TestConstructorsRefuseNil(t *testing.T) {
	good, perMinute := memstore.New(nil), sash.PerMinute(1)
	for _, typed := range []bool{false, true} {
		var store driver.Store
		var holder window.Holder
		var script redisstore.Scripter
		if typed {
			store, holder, script = (*memstore.Store)(nil), (*redisstore.Store)(nil), (*scripts)(nil)
		}
		for name, construct := range map[string]func() error{
			"sash: New needs a store":              func() error { _, err := sash.New(store, nil, perMinute); return err },
			"sash: NewConcurrency needs a store":   func() error { _, err := sash.NewConcurrency(store, nil, 1, time.Minute); return err },
			"coalesce: New needs a store":          func() error { stack.GroupCommit(store); return nil },
			"denials: New needs a store":           func() error { stack.DenialCache(store); return nil },
			"stack: New needs a store":             func() error { _, err := stack.New(store, nil); return err },
			"failover: New needs a store":          func() error { _, err := failover.New(store, nil); return err },
			"lease: New needs a store":             func() error { _, err := lease.New(store, time.Second); return err },
			"lease: New needs a store to":          func() error { _, err := lease.Shared(store, good, time.Second, nil); return err },
			"lease: Shared needs a holder":         func() error { _, err := lease.Shared(good, holder, time.Second, nil); return err },
			"redisstore: New needs a Scripter":     func() error { redisstore.New(script, nil); return nil },
			"storetest: NewFaulty needs a store":   func() error { storetest.NewFaulty(store); return nil },
			"httplimit: a middleware needs a limi": func() error { _, err := httplimit.New(nil, httplimit.PeerAddress, nil); return err },
			"httplimit: a middleware needs a":      func() error { _, err := httplimit.NewLayers(nil, nil, nil); return err },
			"a middleware needs a limiter":         func() error { _, err := middleware.NewGate[int](nil, nil, middleware.GateOptions[int]{}); return err },
			"failover: mode local needs": func() error {
				_, err := failover.New(good, &failover.Options{Local: store, Modes: failover.Modes{Rules: []failover.Rule{{Mode: failover.Local}}}})
				return err
			},
			"lease: an own share needs the store": func() error {
				_, err := lease.Shared(good, good, time.Second, &lease.Options{Own: &lease.Own{Regions: 2, Percent: 10, Store: store}})
				return err
			},
		} {
			if text := said(construct); !strings.HasPrefix(text, name) {
				t.Errorf("typed %v: said %q, want %q", typed, text, name)
			}
		}
	}
	if _, err := sash.New(good, &sash.Options{Observer: (*observer)(nil)}, perMinute); err == nil || !strings.Contains(err.Error(), "Observer is a nil") {
		t.Errorf("a nil observer: %v", err)
	}
}
