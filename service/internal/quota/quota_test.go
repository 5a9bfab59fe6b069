package quota

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/servertest"
)

const rules = `
domain: d
descriptors:
- key: user
  limits: ["1000/1m"]
  lease: 2s
- key: few
  limits: ["100/1m"]
  lease: 2s
- key: plain
  limits: ["10/1m"]
- key: none
  rate_limit: {unlimited: true}
- key: never
  rate_limit: {unit: day, requests_per_unit: 0}
- key: z
  value: x
  descriptors:
  - key: a
    limits: ["100/1m"]
    lease: 3s
`

var user = config.Entry{Key: "user", Value: "1"}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Steady demand of three Envoys, or of one under a small limit, gets at least nine tenths of what there is, or of the limit in every
// window and lease.
func TestSteadyDemandGetsWhatTheLimitHas(t *testing.T) {
	for _, perSecond := range []float64{3, 5, 14, 30, 200} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			id, limit, envoys := "user=1", 1000, 3
			if perSecond == 3 {
				id, limit, envoys = "few=1", 100, 1
			}
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, rules)
				var together sync.WaitGroup
				var sent, admitted, pushes atomic.Int64
				const long = 10 * time.Minute
				for i := range envoys {
					together.Go(func() {
						e := w.envoy()
						defer e.kill()
						s, a := e.send(random(uint64(i)), id, perSecond/float64(envoys), long)
						sent.Add(int64(s))
						admitted.Add(int64(a))
						pushes.Add(int64(e.messages()))
					})
				}
				together.Wait()
				most, want := w.most(time.Minute), 0.9*min(float64(sent.Load()), float64(limit)*float64(long)/float64(62*time.Second))
				t.Logf("%d of %d admitted, at most %d in a minute; %.1f messages a second to each Envoy",
					admitted.Load(), sent.Load(), most, float64(pushes.Load())/long.Seconds()/float64(envoys))
				if most > limit || float64(admitted.Load()) < want {
					t.Errorf("%d of %d were admitted, at most %d in a minute; want at least %.0f", admitted.Load(), sent.Load(), most, want)
				}
			})
		})
	}
}

// Whatever the demand is, and whoever dies or is cut off, no window has more than the limit, over all Envoys and the calls that
// the service decides.
func TestNoWindowHasMoreThanTheLimit(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, rules)
			w.delay = 900 * time.Millisecond
			var together sync.WaitGroup
			end := time.Now().Add(5 * time.Minute)
			for i, e := range w.fleet(3, 2) {
				together.Go(func() {
					r := random(100*seed + uint64(i))
					for time.Now().Before(end) {
						e.send(r, "user=1", 0.2+100*r.Float64()*r.Float64()*r.Float64(), time.Duration(1+r.IntN(20))*time.Second)
						switch r.IntN(6) {
						case 0:
							e.kill()
							e = w.envoy()
						case 1:
							e.disconnect()
						case 2:
							time.Sleep(time.Duration(r.IntN(20)) * time.Second)
						}
					}
					e.kill()
				})
			}
			together.Go(func() {
				for r := random(seed + 7777); time.Now().Before(end); time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond) {
					w.call(user)
				}
			})
			together.Wait()
			if most := w.most(time.Minute); most > 1000 {
				t.Errorf("seed %d: %d in a minute", seed, most)
			} else if testing.Verbose() {
				t.Logf("seed %d: at most %d in a minute, %d in all", seed, most, len(w.admitted))
			}
		})
	}
}

// Buckets that no rule limits are admitted, as by the filter that calls for each request. Buckets whose units cannot be granted are denied.
func TestWhatHasNoGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		e := w.envoy()
		defer e.kill()
		for id, want := range map[string]int{"other=1": 50, "none=1": 50, "plain=1": 0, "never=1": 0, "user=2": 10, "a=7 z=x": 3, "a=7 z=y": 50} {
			e.request(id)
			time.Sleep(time.Second)
			got := 0
			for range 50 {
				if e.request(id) {
					got++
				}
			}
			if want == 0 && got > 0 || got < want || want < 50 && got == 50 {
				t.Errorf("%s: %d of 50 at once were admitted, want about %d", id, got, want)
			}
		}
	})
}

// A bucket without requests is abandoned, and its granted units that were not spent go back.
func TestIdleBucketsAreAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		e := w.envoy()
		defer e.kill()
		_, spent := e.send(random(1), "user=1", 5, 20*time.Second)
		time.Sleep(30 * time.Second)
		e.mu.Lock()
		buckets := len(e.buckets)
		e.mu.Unlock()
		pushes := e.messages()
		answers := servertest.Must(w.decider.Peek(t.Context(), decide.One("d", []config.Entry{user}, new(int64(1)))))(t)
		charged := 1000 - int(answers[0].Limits[0].Remaining)
		if buckets != 0 || charged < spent || charged > spent+10 {
			t.Errorf("%d buckets are left; %d units are charged, and %d were spent", buckets, charged, spent)
		}
		time.Sleep(time.Minute)
		if e.messages() != pushes || len(w.service.demands) != 0 {
			t.Errorf("%d messages to an Envoy without a bucket; %d demands", e.messages()-pushes, len(w.service.demands))
		}
	})
}

// A stream has at most so many buckets. Those of 5,400 users who come once are denied beyond that, and given up when they are idle,
// so that Envoy forgets them; a user who was there before keeps the quota.
func TestBucketsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		e := w.envoy()
		e.send(random(1), "user=1", 10, 20*time.Second)
		var attack sync.WaitGroup
		attack.Go(func() {
			for i := range 5400 {
				e.request(fmt.Sprintf("user=%d", i+2))
				time.Sleep(time.Second / 300)
				if w.service.mu.Lock(); len(w.service.demands) > maxBuckets {
					t.Errorf("a stream has %d buckets", len(w.service.demands))
				}
				w.service.mu.Unlock()
			}
		})
		if sent, n := e.send(random(2), "user=1", 10, 18*time.Second); n < sent*9/10 {
			t.Errorf("%d of %d requests were admitted beside an attack", n, sent)
		}
		attack.Wait()
		time.Sleep(40 * time.Second)
		e.kill()
		if len(e.buckets) > 0 {
			t.Errorf("Envoy has %d buckets left", len(e.buckets))
		}
	})
}

func TestWhatWasAdmittedWithoutAGrantIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		e := w.envoy()
		defer e.kill()
		e.mu.Lock()
		e.connect()
		e.link.up <- &pb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: &pb.BucketId{Bucket: map[string]string{"user": "1"}}, NumRequestsAllowed: 300},
		}}
		e.mu.Unlock()
		time.Sleep(time.Second)
		answers := servertest.Must(w.decider.Peek(t.Context(), decide.One("d", []config.Entry{user}, new(int64(1)))))(t)
		if left := answers[0].Limits[0].Remaining; left > 700 {
			t.Errorf("%d units are left", left)
		}
	})
}

// A faulty store is away for a while, or its charges take a while.
type faulty struct {
	driver.Passthrough
	away  atomic.Bool
	takes atomic.Int64

	settled atomic.Bool // whether it was asked to give units back
}

func (f *faulty) Do(ctx context.Context, b *driver.Batch) error {
	if f.away.Load() {
		return fmt.Errorf("away")
	}
	f.settled.Store(f.settled.Load() || b.Ops[0].Kind == driver.Settle)
	err := f.Store.Do(ctx, b)
	if b.Ops[0].MayCharge() > 0 {
		time.Sleep(time.Duration(f.takes.Load()))
	}
	return err
}

func (w *world) faulty() *faulty {
	return &faulty{Passthrough: driver.Passthrough{Store: servertest.Must(w.memory.Place(config.Place{Lease: 2 * time.Second}))(w.t)}}
}

// While the store is away the rule says what the next grant is.
func TestTheStoreIsAway(t *testing.T) {
	for mode, wants := range map[string]bool{"closed": false, "open": true} {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, rules)
			store := w.faulty()
			w.decider = servertest.Decider(t, servertest.Must(failover.New(store, nil))(t),
				"domain: d\ndescriptors: [{key: user, limits: [1000/1m], lease: 2s, on_unavailable: "+mode+"}]")
			w.service.Decider = w.decider
			e := w.envoy()
			defer e.kill()
			e.send(random(1), "user=1", 10, 20*time.Second)
			store.away.Store(true)
			time.Sleep(3 * time.Second)
			if _, n := e.send(random(2), "user=1", 5, 5*time.Second); n > 0 != wants {
				t.Errorf("%s: %d were admitted while the store was away", mode, n)
			}
			store.away.Store(false)
			if _, n := e.send(random(3), "user=1", 10, 20*time.Second); n < 50 {
				t.Errorf("%s: %d were admitted when it was back", mode, n)
			}
		})
	}
}

// A bucket whose demand cannot be added up is denied, until it can be.
func TestTheTallyHasNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		var none atomic.Bool
		w.service.Decider = servertest.Must(decide.New(w.decider.Config(), func(p config.Place) (driver.Store, error) {
			if none.Load() && p.Lease == 0 {
				return nil, config.ErrNone
			}
			return w.memory.Place(p)
		}))(t)
		none.Store(true)
		e := w.envoy()
		defer e.kill()
		if _, n := e.send(random(1), "user=1", 10, 5*time.Second); n > 1 {
			t.Errorf("%d were admitted", n)
		}
		none.Store(false)
		if _, n := e.send(random(2), "user=1", 10, 20*time.Second); n < 150 {
			t.Errorf("%d were admitted afterwards", n)
		}
	})
}

// A stream ends with its Envoy, also right after a report, and with the service.
func TestStreamsEndWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		e := w.envoy()
		e.request("user=1")
		synctest.Wait()
		e.disconnect()
		if len(w.service.demands) != 0 {
			t.Error("the stream of an Envoy that is gone goes on")
		}
		e.report()
		time.Sleep(time.Second)
		close(w.ended)
		synctest.Wait()
		if e.link.ctx.Err() == nil || len(w.service.demands) != 0 {
			t.Error("the stream goes on")
		}
		e.kill()
	})
}

// What goes back leaves charged, from every grant on, at least what was spent of it and of later ones: so every window counts what is
// spent in it. In the end nothing else stays charged.
func TestRefundsLeaveWhatWasSpent(t *testing.T) {
	type given struct {
		units, spent, charged int64
		until                 time.Time
	}
	for seed := range uint64(300) {
		r, now := random(seed), time.Unix(0, 0)
		b := &bucket{shared: &demand{}}
		var all []*given
		of := make(map[*decide.Reservation]*given)
		allowed, share := int64(0), r.Float64()
		report := func() {
			b.refund(allowed, now)
			allowed = 0
			for _, g := range b.back {
				of[g.Reservation].charged = g.worth
			}
			b.back = nil
			charged, spent := int64(0), int64(0)
			for i := len(all) - 1; i >= 0; i-- {
				charged, spent = charged+all[i].charged, spent+all[i].spent
				if charged < spent {
					t.Fatalf("seed %d: of grants %d to %d %d units were spent, and %d are charged", seed, i, len(all), spent, charged)
				}
			}
			if b.owed != 0 {
				t.Fatalf("seed %d: %d units are owed", seed, b.owed)
			}
		}
		for step := range 3000 {
			now = now.Add(100 * time.Millisecond)
			if step < 2500 && r.IntN(8) == 0 {
				for _, g := range b.grants {
					if over := now.Add(delivery); over.Before(of[g.Reservation].until) {
						of[g.Reservation].until = over
					}
				}
				b.assign(blanket(false), standing)
				b.end(now)
				made := &decide.Reservation{}
				g := &given{units: 1 + r.Int64N(20), until: now.Add(2 * time.Second)}
				g.charged = g.units
				of[made] = g
				all = append(all, g)
				b.grant(made, g.units, g.until)
			}
			for _, g := range all[max(0, len(all)-20):] {
				if g.until.After(now) && g.spent < g.units && r.Float64() < share {
					n := 1 + r.Int64N(g.units-g.spent)
					g.spent, allowed = g.spent+n, allowed+n
				}
			}
			if step%50 == 0 {
				report()
			}
		}
		charged, spent, units := int64(0), int64(0), int64(0)
		for _, g := range all {
			charged, spent, units = charged+g.charged, spent+g.spent, units+g.units
		}
		if charged-spent > (units-spent)/2+40 {
			t.Errorf("seed %d: of %d units %d were spent, and %d stay charged", seed, units, spent, charged)
		}
	}
}

func TestWhatIsSpentOfUnitsThatWentBackIsOwed(t *testing.T) {
	b, now := &bucket{shared: &demand{}}, time.Unix(0, 0)
	b.grant(&decide.Reservation{}, 10, now.Add(time.Second))
	b.refund(0, now.Add(time.Second))
	b.refund(4, now.Add(2*time.Second))
	if len(b.back) != 1 || b.owed != 4 {
		t.Errorf("%d grants went back, and %d units are owed", len(b.back), b.owed)
	}
}

func TestALateGrantIsNotGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, rules)
		store := w.faulty()
		w.service.Decider = servertest.Decider(t, store, rules)
		w.decider = w.service.Decider
		e := w.envoy()
		defer e.kill()
		e.send(random(1), "user=1", 10, 20*time.Second)
		store.takes.Store(int64(delivery - 100*time.Millisecond))
		time.Sleep(3 * time.Second)
		if _, n := e.send(random(2), "user=1", 10, 10*time.Second); n > 0 {
			t.Errorf("%d requests were admitted by late grants", n)
		}
		store.takes.Store(0)
		if _, n := e.send(random(3), "user=1", 10, 30*time.Second); n < 200 {
			t.Errorf("%d requests were admitted when it was quick again", n)
		}
	})
}

// A report that waited while the store was slow does not show that nothing was spent meanwhile, and a message that leaves late ends
// what Envoy has later.
func TestWhatIsSpentWhileTheStoreIsSlowStaysCharged(t *testing.T) {
	// Of a lease that ends at ten, when the store is slow, and how much later the report comes.
	for at, wait := range map[time.Duration]time.Duration{2 * time.Second: 1500 * time.Millisecond, 8 * time.Second: 500 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const long = "domain: d\ndescriptors: [{key: user, limits: [1000/1m], lease: 10s}]"
			w := begin(t, long)
			store := &faulty{Passthrough: driver.Passthrough{Store: servertest.Must(w.memory.Place(config.Place{Lease: 10 * time.Second}))(t)}}
			w.service.Decider = servertest.Decider(t, store, long)
			w.service.Timeout = 3 * time.Second
			e := w.envoy()
			e.mu.Lock()
			e.connect()
			l := e.link
			e.mu.Unlock()
			defer e.kill()
			report := func(denied uint64) {
				l.up <- &pb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{{
					BucketId: &pb.BucketId{Bucket: map[string]string{"user": "1"}}, NumRequestsDenied: denied,
				}}}
			}
			report(1)
			time.Sleep(at)
			store.takes.Store(int64(2500 * time.Millisecond))
			report(1) // which renews
			time.Sleep(wait)
			report(0)
			time.Sleep(3*time.Second - wait) // before the store has answered, Envoy spends what it has
			if store.settled.Load() {
				t.Errorf("%v: units went back that Envoy has spent", at)
			}
		})
	}
}

// The stream of a client ends when the file of --access does not list its token any more.
func TestARevokedTokenGetsNoQuota(t *testing.T) {
	w := begin(t, rules)
	file := filepath.Join(t.TempDir(), "access.yaml")
	write := func(token string) {
		sum := sha256.Sum256([]byte(token))
		servertest.Check(t, os.WriteFile(file, fmt.Appendf(nil, "clients: [{name: envoy, tokens: [%x], allow: [decide]}]", sum), 0o600))
	}
	write("secret")
	w.service.Access = servertest.Must(access.Open(file, &access.Options{Log: slog.New(slog.DiscardHandler)}))(t)
	ctx, cut := context.WithCancel(metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer secret")))
	defer cut()
	watched := make(chan error, 1)
	go func() { watched <- w.service.Access.Watch(ctx) }()
	caller := servertest.Must(w.service.Access.Call(ctx))(t)
	l := &link{ctx: access.With(ctx, caller), cut: cut, err: make(chan error, 1)}
	l.up, l.down = make(chan *pb.RateLimitQuotaUsageReports, 1), make(chan message, 100)
	go func() { l.err <- w.service.StreamRateLimitQuotas(l) }()
	l.up <- &pb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &pb.BucketId{Bucket: map[string]string{"user": "1"}}, NumRequestsDenied: 1},
	}}
	<-l.down
	write("another")
	select {
	case err := <-l.err:
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on")
	}
	cut()
	<-watched
}
