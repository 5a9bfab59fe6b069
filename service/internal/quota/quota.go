// Package quota answers Envoy's quota protocol, envoy.service.rate_limit_quota.v3. Each Envoy by itself spends units that the
// store charged in advance.
//
// A rule with a lease counts over windows that are longer by the lease. A grant is charged units that an Envoy may spend until the
// lease ends. Over all Envoys and all calls that the store decides, no window then holds more than the limit. The message with a
// grant has a second (delivery) to arrive, and the rest of the lease is the time to live of the assignment.
//
//	   charged    arrives at Envoy                       counted until charged + window + lease
//	──────┼──────────┼─────────────────────┼──────────────────────────┼────▶ time
//	      │          ├─ spent: its TTL ────┤
//	      └─ at most a second              └ at most the lease after the charge
//
// Envoy reports every five seconds. The service does not wait for that. It renews a grant before it ends, or when the demand in the
// last reports has used it up. It divides the units left by that demand, which instances add up in the store. Units of a grant that
// were not spent go back once reports show it.
package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/throttle"
)

// Bounds and times of a service and of a stream.
const (
	// MaxStreams is the most streams at once, for the server that serves them.
	MaxStreams = 1000
	maxBuckets = 1000    // of a stream; others are denied, and abandoned once idle
	maxID      = 4 << 10 // bytes of a bucket's ID
	maxReports = 10_000  // messages a second
	maxPush    = 100     // buckets in a message
	maxAtOnce  = 16      // buckets, while the store decides
	// MinLease is the shortest lease with grants: the delivery, and a second, which is Envoy's shortest assignment.
	MinLease = 2 * time.Second
	delivery = time.Second
	gather   = 10 * time.Millisecond // between two messages
	again    = 100 * time.Millisecond
	rarely   = 5 * time.Second
	silence  = 15 * time.Second // without a report: then a stream gets no grants
	idle     = 12 * time.Second // without a request: then a bucket is abandoned
	standing = 10 * time.Second // an assignment that charges nothing
	patience = 10 * time.Second // the time in which a grant may go back
)

// Method is the method of the protocol.
const Method = pb.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName

// A Service assigns quota. Its fields must not change once it is registered.
type Service struct {
	pb.UnimplementedRateLimitQuotaServiceServer
	Decider *decide.Decider
	Access  *access.Gate  // says which callers may decide; nil lets all
	Timeout time.Duration // bounds one decision
	Log     *slog.Logger

	log   throttle.Log
	ended <-chan struct{} // closed when streams must end

	mu      sync.Mutex
	demands map[string]*demand // guarded by mu, with its values: by the key of a bucket
}

// Register registers the service. Its streams end when ended is closed.
func (s *Service) Register(server grpc.ServiceRegistrar, ended <-chan struct{}) {
	s.ended, s.demands = ended, make(map[string]*demand)
	s.log.To, s.log.Every = s.Log, 10*time.Second
	pb.RegisterRateLimitQuotaServiceServer(server, s)
}

type stream struct {
	*Service
	ctx     context.Context // the stream's, with its caller
	domain  string
	buckets map[string]*bucket
	heard   time.Time                                 // when it took the last report
	sent    time.Time                                 // the last push
	others  []*pb.RateLimitQuotaResponse_BucketAction // for buckets beyond the bounds
}

// StreamRateLimitQuotas implements the protocol. It ends with UNAVAILABLE when the service stops, with
// UNAUTHENTICATED or PERMISSION_DENIED for a caller without the right, and with INVALID_ARGUMENT for another domain.
func (s *Service) StreamRateLimitQuotas(envoy pb.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	ctx, end := context.WithCancel(envoy.Context())
	defer end()
	st := &stream{Service: s, ctx: ctx, buckets: make(map[string]*bucket)}
	defer func() {
		for key := range st.buckets {
			st.forget(key)
		}
	}()
	came := time.Now()
	reports, failed := conns.Receive(ctx, func() (report, error) {
		<-time.After(time.Second / maxReports)
		asked := time.Now()
		m, err := envoy.Recv()
		if now := time.Now(); now.Sub(asked) > gather { // otherwise the report may have waited since the one before
			came = now
		}
		return report{m, came}, err
	})
	return st.run(reports, failed, envoy.Send)
}

// A report is a message from Envoy, and an instant before which it has not come.
type report struct {
	*pb.RateLimitQuotaUsageReports
	came time.Time
}

func (st *stream) run(reports <-chan report, failed <-chan error, send func(*pb.RateLimitQuotaResponse) error) error {
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		in := reports
		if len(st.others) > maxPush { // they go first, so that they stay few
			in = nil
		}
		select {
		case <-st.ended:
			return status.Error(codes.Unavailable, "the service ends")
		case <-st.ctx.Done():
			return nil
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		case m := <-in:
			if err := st.take(m); err != nil {
				return err
			}
		case <-timer.C:
			st.sent = time.Now()
			if err := st.permit(); err != nil {
				return err
			}
			if actions := st.push(); len(actions) > 0 {
				if err := send(&pb.RateLimitQuotaResponse{BucketAction: actions}); err != nil {
					return err
				}
			}
		}
		next := time.Second
		for _, b := range st.buckets {
			next = min(next, time.Until(b.due))
		}
		if len(st.others) > 0 {
			next = 0
		}
		timer.Reset(max(next, time.Until(st.sent.Add(gather))))
	}
}

// permit returns an error if the caller may not decide, or may no longer, because the file of --access has changed.
func (st *stream) permit() error {
	caller, err := st.Access.Call(st.ctx)
	if err == nil {
		err = st.Access.Permit(caller, st.domain, access.Decide)
	}
	if err != nil {
		return access.Status(err)
	}
	return nil
}

func (st *stream) take(m report) error {
	st.domain = cmp.Or(st.domain, m.GetDomain())
	if st.domain == "" || cmp.Or(m.GetDomain(), st.domain) != st.domain {
		return status.Error(codes.InvalidArgument, "a stream has one domain")
	}
	if err := st.permit(); err != nil {
		return err
	}
	st.heard = time.Now()
	for _, usage := range m.GetBucketQuotaUsages() {
		entries, size := entriesOf(usage.GetBucketId())
		key := config.Key(st.domain, entries)
		switch known := st.buckets[key] != nil; {
		case !known && (size > maxID || len(st.buckets) >= maxBuckets):
			st.log.Log(slog.LevelWarn, "a stream of quota has too many buckets: Envoy denies the others", "buckets", len(st.buckets), "domain", st.domain)
			action := abandon(usage.GetBucketId()) // so that Envoy no longer reports it
			if usage.GetNumRequestsAllowed()+usage.GetNumRequestsDenied() > 0 {
				action = assign(usage.GetBucketId(), blanket(false), standing)
			}
			st.others = append(st.others, action)
			continue
		case !known:
			st.open(key, usage.GetBucketId(), entries)
		}
		st.report(st.buckets[key], usage, m.came)
	}
	return nil
}

// push returns the assignments that are due. If it takes so long that grants could arrive late, it returns denials instead.
func (st *stream) push() (actions []*pb.RateLimitQuotaResponse_BucketAction) {
	n := min(len(st.others), maxPush)
	actions, st.others = slices.Clone(st.others[:n]), st.others[n:]
	began := time.Now()
	var due []*bucket
	for key, b := range st.buckets {
		switch {
		case b.due.After(began) || len(due) == maxPush:
		case began.Sub(b.used) > idle && len(b.grants)+len(b.back) == 0:
			actions = append(actions, abandon(b.id))
			st.forget(key)
		case began.Sub(st.heard) > silence:
			b.due = began.Add(time.Second)
		default:
			due = append(due, b)
		}
	}
	var group errgroup.Group
	group.SetLimit(maxAtOnce)
	for _, b := range due {
		group.Go(func() (err error) {
			defer func() {
				if fault := recover(); fault != nil {
					err = fmt.Errorf("%v\n%s", fault, debug.Stack())
				}
			}()
			st.renew(b)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		panic(err) // in the goroutine of the stream, which ends with the panic
	}
	now := time.Now()
	for _, b := range due {
		if now.Sub(began) > delivery/2 {
			b.denied = time.Time{}
			b.deny(now, again)
		}
		b.end(now)
		actions, b.actions = append(actions, b.actions...), nil
	}
	return actions
}
