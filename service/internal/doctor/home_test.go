package doctor

import (
	"strings"
	"testing"
	"time"

	"example.com/sash/internal/redistest"
	"example.com/sash/lease"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/redisclient"
)

func TestLeasesAndTheWayToTheHome(t *testing.T) {
	v := &visit{way: 150 * time.Millisecond}
	v.leases([]Lease{{"long", 600 * time.Millisecond}, {"short", 599 * time.Millisecond}, {"exact", 299 * time.Millisecond}})
	for i, want := range []struct {
		level    Level
		seen, do string
	}{
		{Warn, "short: a lease of 599ms is shorter than four trips", "lease: 601ms"},
		{Warn, "exact: a lease of 299ms is shorter than two trips", "lease: 601ms"},
		{OK, "leases from 601ms on fit a way of 150ms", ""},
	} {
		if f := v.findings[i]; f.Level != want.level || !strings.Contains(f.Seen, want.seen) || !strings.Contains(f.Do, want.do) {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
	if len(v.findings) != 3 {
		t.Errorf("%d findings", len(v.findings))
	}
}

func TestTheOwnShareOfARegion(t *testing.T) {
	server := redistest.Start(t)
	client, err := redisclient.Inspect(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	v := &visit{client: client, prefix: redisstore.DefaultPrefix}
	here := &lease.Own{Region: "here", Regions: 2, Percent: 10}
	v.own(t.Context(), nil)
	v.own(t.Context(), here)
	here.Store = v.store()
	store, err := lease.Shared(v.store(), v.store(), time.Second, &lease.Options{Own: here})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Agree(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.own(t.Context(), here)
	v.own(t.Context(), &lease.Own{Region: "there", Regions: 2, Percent: 20})
	for i, want := range []struct {
		level Level
		seen  string
	}{
		{Unchecked, `"here" has no own share yet; registered are: none`},
		{OK, `"here" has an own share; registered are: here`},
		{Warn, "other regions have agreed on 2 regions with 10 %"},
	} {
		if f := v.findings[i]; f.Level != want.level || !strings.Contains(f.Seen, want.seen) {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
}
