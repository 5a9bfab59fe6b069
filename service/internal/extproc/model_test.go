package extproc_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/conns"
	"example.com/sash/service/internal/extproc"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/stats"
	"example.com/sash/service/internal/wire"
)

// The limits of the model. Its clock goes in steps of 600 s, so that no charge leaves the window near a decision.
const (
	modelRules = `
domain: ai
descriptors:
- {key: x-user, limits: [1000/5000s], tokens: {format: openai, default_max: 150}}
- {key: all, limits: [2600/5000s], tokens: {format: openai, default_max: 150}}
- {key: requests, limits: [12/5000s]}
`
	modelQuestion = "domain=ai&descriptor=header:x-user&descriptor=all=1&descriptor=requests=1"
)

// A pipe is the stream of one request to a service in this process.
type pipe struct {
	grpc.ServerStream
	ctx       context.Context
	leave     context.CancelFunc
	requests  chan *ext.ProcessingRequest
	responses chan *ext.ProcessingResponse
	over      chan error
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) Recv() (*ext.ProcessingRequest, error) {
	select {
	case req := <-p.requests:
		return req, nil
	case <-p.ctx.Done():
		return nil, p.ctx.Err()
	}
}

func (p *pipe) Send(res *ext.ProcessingResponse) error {
	p.responses <- res
	return nil
}

// stream begins one whose messages the test sends and receives.
func (m *model) stream(initial metadata.MD) *pipe {
	ctx, leave := context.WithCancel(metadata.NewIncomingContext(m.t.Context(), initial))
	p := &pipe{ctx: ctx, leave: leave, requests: make(chan *ext.ProcessingRequest), responses: make(chan *ext.ProcessingResponse), over: make(chan error, 1)}
	go func(service ext.ExternalProcessorServer) { p.over <- service.Process(p) }(m.service)
	return p
}

// A call is an admitted request as the model sees it. Its response has the stream.
type call struct {
	*stream
	second              *pipe // nil before the response
	user                string
	at                  int64
	bound, used, counts int64 // the most tokens by the definition, what the vendor served, and what has to count
	ends                string
	rest                string // of the response
}

// A model is an Envoy, its clients and its vendor before a service, with what has to count by the definition.
type model struct {
	*world
	random  *rand.Rand
	now     int64
	tokens  *wire.Tokens // all services have the same
	service ext.ExternalProcessorServer
	calls   []*call // all that were admitted
	flying  []*call
	refused int
}

// RegisterService implements grpc.ServiceRegistrar: it keeps the service.
func (m *model) RegisterService(_ *grpc.ServiceDesc, impl any) {
	m.service = impl.(ext.ExternalProcessorServer)
}

// restart begins another service on the same store, and kills the one before with the requests that are in flight, or not.
func (m *model) restart(kill bool) {
	for kill && len(m.flying) > 0 {
		m.end(0)
	}
	opts := extproc.Options{Room: new(conns.Room), Tokens: m.tokens, Stats: stats.New(nil), Log: slog.New(slog.DiscardHandler)}
	opts.Room.Add(1 << 20)
	extproc.Register(m, m.decider, opts)
}

// window returns the tokens of the last window that have to count and that were served, of a user or of all, and the calls.
func (m *model) window(user string) (counts, served, calls int64) {
	for _, c := range m.calls {
		if c.at > m.now-5000 && (user == "" || c.user == user) {
			counts, served, calls = counts+c.counts, served+c.used, calls+1
		}
	}
	return counts, served, calls
}

// open sends a request, which has to be admitted if and only if all limits have room for the most that it can use.
func (m *model) open() {
	output, answers := int64(0), 1+m.random.Int64N(2)*m.random.Int64N(3)
	fields := []string{fmt.Sprintf(`"n":%d`, answers)}
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if n := 1 + m.random.Int64N(200); m.random.IntN(3) > 0 {
			fields = append(fields, fmt.Sprintf(`"%s":%d`, name, n))
			output = max(output, n)
		}
	}
	output = cmp.Or(output, 150)
	m.random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	body := `{"model":"m","prompt":"` + strings.Repeat("x", m.random.IntN(200)) + `",` + strings.Join(fields, ",") + "}"
	c := &call{user: string(rune('a' + m.random.IntN(3))), at: m.now, bound: int64(len(body)) + output*answers}
	first := m.stream(metadata.Pairs("sash", modelQuestion))
	ofUser, _, _ := m.window(c.user)
	ofAll, _, requests := m.window("")
	fits := ofUser+c.bound <= 1000 && ofAll+c.bound <= 2600 && requests < 12
	first.requests <- requestHeaders(false, ":method", "POST", ":path", "/v1/chat/completions", "x-user", c.user)
	first.requests <- requestBody(body)
	res := <-first.responses
	if admitted := res.GetRequestHeaders() != nil; admitted != fits {
		m.t.Fatalf("%s of %s, at most %d tokens beside %d, %d and %d requests: %v", body, c.user, c.bound, ofUser, ofAll, requests, res)
	}
	if fits {
		c.stream = &stream{saved: map[string]*structpb.Struct{}}
		c.save(res)
		<-first.responses
	}
	servertest.Check(m.t, <-first.over)
	first.leave()
	if !fits {
		m.refused++
		return
	}
	c.used, c.counts = min(c.bound, 1+m.random.Int64N(2*c.bound)), c.bound
	c.ends = []string{"usage", "usage", "trailers", "none", "gzip", "leaves", "leaves", "503", "429", "504"}[m.random.IntN(10)]
	last := fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, c.used/2, c.used-c.used/2)
	switch c.rest = last; {
	case c.ends == "none":
		c.rest = "data: [DONE]\n\n"
	case c.ends == "503" || c.ends == "429":
		c.rest, c.used = "{}", 0
	case m.random.IntN(2) == 0:
		c.rest = "data: {\"choices\":[]}\n\ndata: " + last + "\n\ndata: [DONE]\n\n"
	}
	m.calls, m.flying = append(m.calls, c), append(m.flying, c)
}

// proceed passes on a part of a response, and reports whether it was the last.
func (m *model) proceed(c *call) (last bool) {
	send := func(message *ext.ProcessingRequest) { c.second.requests <- c.observed(message) }
	if c.second == nil {
		encoding, status := "identity", "200"
		switch c.ends {
		case "gzip":
			encoding = "gzip"
		case "429", "503", "504":
			status = c.ends
		}
		c.second = m.stream(nil)
		send(responseHeaders(false, ":status", status, "content-encoding", encoding))
		return false
	}
	n := 1 + m.random.IntN(len(c.rest))
	part := c.rest[:n]
	c.rest = c.rest[n:]
	last = c.rest == ""
	if send(responseBody(part, last && c.ends != "trailers")); last && c.ends == "trailers" {
		send(responseTrailers)
	}
	return last
}

// end ends a call by itself, or in the middle. What has to count is what was used only if the end of the response says so.
func (m *model) end(i int) {
	c := m.flying[i]
	m.flying = append(m.flying[:i], m.flying[i+1:]...)
	if c.second != nil {
		if c.rest != "" {
			c.second.leave()
		}
		servertest.Check(m.t, <-c.second.over)
		c.second.leave()
	}
	whole := strings.Trim(c.rest, "\n") == "" // the last event has come
	if failed := c.used == 0 && c.second != nil; failed || whole && slices.Contains([]string{"usage", "trailers", "leaves"}, c.ends) {
		c.counts = c.used
	}
}

// check compares what the service says is left with the model, and the tokens that the vendor served with the limits.
func (m *model) check() {
	for _, of := range []struct {
		user, key, value string
		limit            int64
	}{{"a", "x-user", "a", 1000}, {"b", "x-user", "b", 1000}, {"c", "x-user", "c", 1000}, {"", "all", "1", 2600}} {
		counts, served, _ := m.window(of.user)
		if left := m.left(of.key, of.value); left != of.limit-counts || served > of.limit {
			m.t.Fatalf("at %d: %+v has %d left, and not %d; %d were served", m.now, of, left, of.limit-counts, served)
		}
	}
}

// In every window the tokens that admitted requests use are within the limits, whatever becomes of clients, vendors and services, as
// long as none uses more than it can; and no request is refused that has room.
func TestTokensOfEveryWindow(t *testing.T) {
	seeds := map[string]uint64{"memory": 8, "Redis": 2}
	for store, start := range map[string]func(t *testing.T) (driver.Store, func(seconds int64)){
		"memory": func(*testing.T) (driver.Store, func(int64)) {
			now := time.Now()
			begin := now
			return memstore.New(&memstore.Options{Now: func() time.Time { return now }}),
				func(seconds int64) { now = begin.Add(time.Duration(seconds) * time.Second) }
		},
		"Redis": func(t *testing.T) (driver.Store, func(int64)) {
			server, clock := redistest.StartWithClock(t)
			return redisstore.New(redistest.Scripter(server), nil),
				func(seconds int64) { clock.Move(t, time.Duration(seconds)*time.Second) }
		},
	} {
		t.Run(store, func(t *testing.T) {
			for seed := range seeds[store] {
				over, move := start(t)
				m := &model{random: rand.New(rand.NewPCG(seed, 37)), tokens: wire.NewTokens()}
				m.world = &world{t: t, decider: servertest.Decider(t, over, modelRules)}
				m.restart(false)
				for range 400 {
					switch n := m.random.IntN(40); {
					case n == 0:
						m.restart(m.random.IntN(2) == 0)
					case n < 5:
						m.now += 600
						move(m.now)
					case n < 15:
						m.open()
					case len(m.flying) > 0:
						i := m.random.IntN(len(m.flying))
						if c := m.flying[i]; c.ends == "leaves" && m.random.IntN(4) == 0 || m.proceed(c) {
							m.end(i)
						}
					}
					m.check()
				}
				m.restart(true)
				m.check()
				if m.refused < 20 || len(m.calls) < 20 {
					t.Errorf("%d refused and %d admitted", m.refused, len(m.calls))
				}
			}
		})
	}
}
