package faulttest

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/rueidisstore"
)

// A call is what one caller saw of one call.
type call struct {
	key        string
	cost       int64
	start, end time.Time
	sash.Result
	err error
}

// A load is callers that ask for units as fast as they are answered, until they are stopped.
type load struct {
	limiter  *sash.Limiter
	patience time.Duration // of the client
	quit     chan struct{}
	group    sync.WaitGroup
	admitted atomic.Int64 // calls
	refused  atomic.Int64
	failed   atomic.Int64

	mu    sync.Mutex
	calls []call          // guarded by mu
	late  []time.Duration // guarded by mu: how much later than they could goroutines went on
}

// callers is how many goroutines ask at once.
const callers = 6

// How long clients wait for a reply. Where a test is about a server that does not answer, they give up soon;
// where it says that no call fails, a machine that is busy must not be why one does. Callers wait for
// longer: a client that wanted to ask again, which it must not, would have the time.
const (
	hurried = 200 * time.Millisecond
	patient = 30 * time.Second
)

// start starts a load. The key of each call is what key returns: i counts the calls of one caller.
func start(t testing.TB, limiter *sash.Limiter, patience time.Duration, key func(caller, i int) string) *load {
	l := &load{limiter: limiter, patience: patience, quit: make(chan struct{})}
	t.Cleanup(func() { l.stop() })
	for c := range callers {
		l.group.Go(func() {
			var mine []call
			for i := 0; !l.quits(); i++ {
				mine = append(mine, l.ask(key(c, i), 1+int64(i%2)))
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls = append(l.calls, mine...)
		})
	}
	return l
}

// startOn starts a load on one subject.
func startOn(t testing.TB, limiter *sash.Limiter, patience time.Duration) *load {
	return start(t, limiter, patience, func(int, int) string { return subject })
}

// loaded starts a server and a load on one of its subjects, under the limits of most tests.
func loaded(t testing.TB, a adapter, patience time.Duration) (*redistest.Server, *sash.Limiter, *load) {
	t.Helper()
	server := redistest.Start(t)
	l := limiter(t, a.open(t, to(server.Addr(), patience)), limits...)
	return server, l, startOn(t, l, patience)
}

// subject is the key of every call where there is only one subject.
const subject = "subject"

func (l *load) quits() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

func (l *load) ask(key string, cost int64) call {
	ctx, cancel := context.WithTimeout(context.Background(), 3*l.patience)
	defer cancel()
	c := call{key: key, cost: cost, start: time.Now()}
	c.Result, c.err = l.limiter.AllowN(ctx, key, cost)
	c.end = time.Now()
	switch {
	case c.err != nil:
		l.failed.Add(1)
	case c.Allowed:
		l.admitted.Add(1)
		return c
	default:
		l.refused.Add(1)
	}
	select { // leave the machine to others
	case <-l.quit:
	case <-time.After(time.Millisecond):
	}
	return c
}

// stop ends the load and returns all calls.
func (l *load) stop() history {
	l.mu.Lock()
	if !l.quits() {
		close(l.quit)
	}
	l.mu.Unlock()
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// more waits until a counter of the load has grown by n.
func more(t testing.TB, what string, counter *atomic.Int64, n int64) {
	t.Helper()
	n += counter.Load()
	await(t, what, func() bool { return counter.Load() >= n })
}

// never is longer than anything takes that happens at all, also on a machine that does a lot of other work.
const never = 5 * time.Minute

// await waits until something happens, and fails the test when it does not.
func await(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(never); !happened(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen within %v: %s", never, what)
		}
	}
}

// check ends a test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns what gives a test the value, and ends the test if there is an error: must(strconv.Atoi(text))(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return value
	}
}

// limiter makes a limiter over a store.
func limiter(t testing.TB, store driver.Store, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	return limiterWith(t, store, sash.SlidingLog, limits...)
}

// limiterWith makes a limiter with an algorithm.
func limiterWith(t testing.TB, store driver.Store, algorithm sash.Algorithm, limits ...sash.Limit) *sash.Limiter {
	t.Helper()
	opts := &sash.Options{Algorithm: algorithm}
	if algorithm == sash.SlidingBuckets {
		opts.Resolution = time.Second
	}
	return must(sash.New(store, opts, limits...))(t)
}

// used returns the units that a subject is charged with under a limiter's last limit.
func used(t testing.TB, l *sash.Limiter, key string) int64 {
	t.Helper()
	for deadline := time.Now().Add(never); ; time.Sleep(5 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		res, err := l.Peek(ctx, key)
		cancel()
		if err == nil && res.Source == driver.FromStore { // a busy machine may be late, and then failover answers
			limits := res.Limits()
			last := limits[len(limits)-1]
			return last.Limit.Units - last.Remaining
		}
		if err != nil && !errors.Is(err, sash.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) || time.Now().After(deadline) {
			t.Fatal(res, err) // a connection that broke may fail a call or two
		}
	}
}

// TestMain silences a client library that logs every connection that it cannot make, and runs more
// tests at once than there are processors: most of their time they wait.
func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{})
	if job := os.Getenv(waitersEnv); job != "" {
		if err := waitersMain(job); err != nil {
			panic(err)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A target says how a server is reached. The zero value of each field but addrs is the usual way.
type target struct {
	addrs          []string // the server, the sentinels, or nodes of the cluster
	sentinel       string   // what sentinels call the primary
	cluster        bool
	tls            *tls.Config
	user, password string
	patience       time.Duration // how long the client waits for a reply; 0 is what Tune sets
	pool           int           // connections, or calls on their way where one is shared; 0 is many
	db             int           // the number of the database
	plain          bool          // the client has its defaults, and neither Tune's nor Greet's
	options        *redisstore.Options
}

// An adapter makes a client and a store over it, as a user would.
type adapter struct {
	name string
	try  func(testing.TB, target) (connection, error)
}

// A connection is a client and a store over it.
type connection struct {
	*redisstore.Store
	ping func() error // sends a command of the client, without the store
}

// dial connects to a server that is up.
func (a adapter) dial(t testing.TB, at target) connection {
	t.Helper()
	return must(a.try(t, at))(t)
}

// open is dial for the store alone.
func (a adapter) open(t testing.TB, at target) *redisstore.Store {
	t.Helper()
	return a.dial(t, at).Store
}

var adapters = []adapter{{"go-redis", tryGoRedis}, {"rueidis", tryRueidis}}

// each runs a test with every adapter, side by side.
func each(t *testing.T, f func(*testing.T, adapter)) {
	t.Parallel()
	for _, a := range adapters {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			f(t, a)
		})
	}
}

// to is a server at an address.
func to(addr string, patience time.Duration) target {
	return target{addrs: []string{addr}, patience: patience}
}

func tryGoRedis(t testing.TB, at target) (connection, error) {
	opts := redis.UniversalOptions{
		Addrs: at.addrs, MasterName: at.sentinel, IsClusterMode: at.cluster, DB: at.db,
		Username: at.user, Password: at.password, TLSConfig: at.tls,
		ReadTimeout: at.patience, PoolSize: at.pool, PoolTimeout: time.Minute,
	}
	if at.patience > time.Second { // a busy machine is late to connect and to write, too
		opts.DialTimeout, opts.WriteTimeout = at.patience, at.patience
	}
	var client redis.UniversalClient
	switch {
	case at.plain:
		// No notifications, as New says: some tests wait for replicas.
		opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		client = redis.NewUniversalClient(&opts)
	case at.cluster:
		client = redis.NewClusterClient(goredisstore.Tune(opts.Cluster()))
	case at.sentinel != "":
		client = redis.NewFailoverClient(goredisstore.Tune(opts.Failover()))
	default:
		client = redis.NewClient(goredisstore.Tune(opts.Simple()))
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil && at.plain {
			t.Errorf("the client was closed before: %v", err)
		}
	})
	if !at.plain {
		goredisstore.Greet(client)
	}
	return connection{goredisstore.New(client, at.options), func() error { return client.Ping(context.Background()).Err() }}, nil
}

func tryRueidis(t testing.TB, at target) (connection, error) {
	opts := rueidis.ClientOption{
		InitAddress: at.addrs, Sentinel: rueidis.SentinelOption{MasterSet: at.sentinel}, SelectDB: at.db,
		Username: at.user, Password: at.password, TLSConfig: at.tls,
		ConnWriteTimeout: at.patience,
		DisableCache:     at.user != "", // its invalidations are a right of their own
	}
	if at.patience > time.Second {
		opts.Dialer.Timeout = at.patience
	}
	if at.pool > 0 {
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1 // a ring of two places, on one connection
	}
	if !at.plain {
		opts = rueidisstore.Tune(opts)
	}
	client, err := rueidis.NewClient(opts)
	if err != nil {
		return connection{}, err
	}
	t.Cleanup(client.Close)
	ping := func() error { return client.Do(context.Background(), client.B().Ping().Build()).Error() }
	return connection{rueidisstore.New(client, at.options), ping}, nil
}
