package quota

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/sash/memstore"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/degrade"
	"example.com/sash/service/internal/servertest"
)

func TestMain(m *testing.M) { servertest.NoLeak(m) }

// A world is a service in memory with Envoys that behave as the real one does: see fakeEnvoy.
type world struct {
	t       *testing.T
	memory  *degrade.Memory
	decider *decide.Decider
	service *Service // of the next Envoy
	ended   chan struct{}
	delay   time.Duration // the longest time that a message takes

	mu       sync.Mutex
	admitted []time.Time // guarded by mu
}

func begin(t *testing.T, rules string) *world {
	memory := degrade.NewMemory(memstore.Options{}, slog.New(slog.DiscardHandler))
	cfg := servertest.Must(config.Parse(config.Defaults{}, false, config.File{Name: "rules.yaml", Text: []byte(rules)}))(t)
	w := &world{t: t, memory: memory, ended: make(chan struct{})}
	w.instance(cfg)
	w.decider = w.service.Decider
	return w
}

// instance adds an instance of the service on the same store, which the next Envoys have.
func (w *world) instance(cfg *config.Config) {
	decider := servertest.Must(decide.New(cfg, w.memory.Place))(w.t)
	w.service = &Service{Decider: decider, Timeout: time.Second, Log: slog.New(slog.DiscardHandler)}
	w.service.Register(grpc.NewServer(), w.ended)
}

func (w *world) admits() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitted = append(w.admitted, time.Now())
}

// most returns the most requests that were admitted in any window of a length.
func (w *world) most(window time.Duration) (most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := 0
	for i, at := range w.admitted {
		for !w.admitted[first].After(at.Add(-window)) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// call asks the service for one request, as the filter does that asks for each.
func (w *world) call(entries ...config.Entry) bool {
	cost := int64(1)
	answers, err := w.decider.Decide(context.Background(), decide.One("d", entries, &cost))
	if err != nil || !answers[0].Allowed() {
		return false
	}
	w.admits()
	return true
}

// A fakeEnvoy has a stream and buckets as Envoy 1.40 has them: an assignment lives for its TTL after its message arrived, tokens are
// not filled, and whatever has no assignment is denied. A new bucket reports alone and at once; every five seconds all report deltas,
// which are lost while there is no stream, and a stream that was lost is opened again.
type fakeEnvoy struct {
	w       *world
	service *Service
	done    chan struct{}
	over    sync.WaitGroup

	mu      sync.Mutex
	link    *link               // guarded by mu; nil without a stream
	buckets map[string]*assumed // guarded by mu
	pushes  int                 // guarded by mu: messages
	granted int64               // guarded by mu: tokens
}

type assumed struct {
	id              *pb.BucketId
	tokens          int64 // -1 is all
	ends            time.Time
	allowed, denied uint64
	reported        time.Time
}

type message struct {
	*pb.RateLimitQuotaResponse
	arrives time.Time
}

type link struct {
	grpc.ServerStream
	ctx  context.Context
	cut  context.CancelFunc
	up   chan *pb.RateLimitQuotaUsageReports
	down chan message
	err  chan error

	delay time.Duration
}

func (l *link) Context() context.Context { return l.ctx }

func (l *link) Recv() (*pb.RateLimitQuotaUsageReports, error) {
	select {
	case m := <-l.up:
		return m, nil
	case <-l.ctx.Done():
		return nil, io.EOF
	}
}

func (l *link) Send(m *pb.RateLimitQuotaResponse) error {
	select {
	case l.down <- message{m, time.Now().Add(rand.N(l.delay + 1))}:
		return nil
	case <-l.ctx.Done():
		return l.ctx.Err()
	}
}

func (w *world) envoy() *fakeEnvoy {
	e := &fakeEnvoy{w: w, service: w.service, done: make(chan struct{}), buckets: make(map[string]*assumed)}
	e.over.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				e.report()
			case <-e.done:
				return
			}
		}
	})
	return e
}

// kill ends Envoy without a last report.
func (e *fakeEnvoy) kill() {
	e.disconnect()
	close(e.done)
	e.over.Wait()
}

func (e *fakeEnvoy) disconnect() {
	e.mu.Lock()
	l := e.link
	e.link = nil
	e.mu.Unlock()
	if l != nil {
		l.cut()
		<-l.err
	}
}

// connect opens a stream if there is none. The caller holds mu.
func (e *fakeEnvoy) connect() {
	if e.link != nil {
		return
	}
	ctx, cut := context.WithCancel(context.Background())
	l := &link{ctx: ctx, cut: cut, err: make(chan error, 1), delay: e.w.delay}
	l.up, l.down = make(chan *pb.RateLimitQuotaUsageReports, 10_000), make(chan message, 1000)
	e.link = l
	go func() { l.err <- e.service.StreamRateLimitQuotas(l); cut() }()
	e.over.Go(func() {
		for {
			select {
			case m := <-l.down:
				time.Sleep(time.Until(m.arrives))
				e.take(m.RateLimitQuotaResponse)
			case <-l.ctx.Done():
				return
			}
		}
	})
}

func (e *fakeEnvoy) take(m *pb.RateLimitQuotaResponse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pushes++
	for _, a := range m.GetBucketAction() {
		b := e.buckets[a.GetBucketId().String()]
		switch {
		case b == nil:
			continue
		case a.GetAbandonAction() != nil:
			delete(e.buckets, b.id.String())
			continue
		}
		q := a.GetQuotaAssignmentAction()
		if q.GetAssignmentTimeToLive().AsDuration()%time.Second != 0 || q.GetAssignmentTimeToLive().AsDuration() < time.Second {
			e.w.t.Errorf("a time to live of %v ends at once", q.GetAssignmentTimeToLive().AsDuration())
		}
		b.ends = time.Now().Add(q.GetAssignmentTimeToLive().AsDuration())
		switch bucket := q.GetRateLimitStrategy().GetTokenBucket(); {
		case bucket != nil && b.tokens != 0:
			e.w.t.Error("tokens without a denial before them keep the level of those before")
		case bucket != nil:
			b.tokens = int64(bucket.GetMaxTokens())
			e.granted += b.tokens
		case q.GetRateLimitStrategy().GetBlanketRule() == typepb.RateLimitStrategy_ALLOW_ALL:
			b.tokens = -1
		default:
			b.tokens = 0
		}
	}
}

func (e *fakeEnvoy) messages() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pushes
}

func (e *fakeEnvoy) report() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link != nil && e.link.ctx.Err() != nil {
		e.link = nil
		for _, b := range e.buckets {
			b.allowed, b.denied = 0, 0
		}
	}
	if len(e.buckets) == 0 {
		return
	}
	e.connect()
	m := &pb.RateLimitQuotaUsageReports{Domain: "d"}
	for _, b := range e.buckets {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, b.usage())
	}
	e.link.up <- m
}

func (b *assumed) usage() *pb.RateLimitQuotaUsageReports_BucketQuotaUsage {
	u := &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: b.id, NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied,
		TimeElapsed: durationpb.New(time.Since(b.reported).Truncate(time.Second)),
	}
	b.allowed, b.denied, b.reported = 0, 0, time.Now()
	return u
}

// request sends a request of a bucket, written as "key=value key=value", and reports whether it is admitted.
func (e *fakeEnvoy) request(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := &pb.BucketId{Bucket: make(map[string]string)}
	for field := range strings.FieldsSeq(id) {
		key, value, _ := strings.Cut(field, "=")
		in.Bucket[key] = value
	}
	b := e.buckets[in.String()]
	if b == nil {
		b = &assumed{id: in, denied: 1, reported: time.Now()}
		e.buckets[in.String()] = b
		if e.link == nil || e.link.ctx.Err() == nil {
			e.connect()
			e.link.up <- &pb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{b.usage()}}
		}
		return false
	}
	if b.tokens == 0 || !time.Now().Before(b.ends) {
		b.denied++
		return false
	}
	if b.tokens > 0 {
		b.tokens--
	}
	b.allowed++
	e.w.admits()
	return true
}

// send sends requests at a rate, at random instants, for a time, and returns how many were sent and admitted.
func (e *fakeEnvoy) send(random *rand.Rand, id string, perSecond float64, long time.Duration) (sent, admitted int) {
	for end := time.Now().Add(long); ; {
		time.Sleep(time.Duration(random.ExpFloat64() / perSecond * float64(time.Second)))
		if !time.Now().Before(end) {
			return sent, admitted
		}
		if sent++; e.request(id) {
			admitted++
		}
	}
}
