// Package servicebench measures sash serve as its clients meet it: over gRPC and HTTP, deciding in its own memory
// and on a real redis-server, all on one machine.
package servicebench

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"example.com/sash/internal/bench/load"
	"example.com/sash/internal/bench/report"
	"example.com/sash/redistest"
)

// Config says how much to measure.
type Config struct {
	Rounds   int           // alternating rounds of every figure
	Long     time.Duration // how long each is measured in a round
	Progress io.Writer     // told what is being measured
}

// inFlight is how many calls wait for an answer at the same time.
var inFlight = []int{1, 64, 256}

const keys = 1000

// A row of the table.
type row struct {
	store    string
	protocol protocol
	service  *service
	inFlight int

	perSecond, p50, p99, own, redis, failed report.Figure
}

// Run measures everything and adds it to the document.
func Run(cfg Config, doc *report.Document) (err error) {
	server, err := redistest.Run()
	if err != nil {
		return err
	}
	defer server.Stop()
	dir, err := os.MkdirTemp("", "servicebench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := build(dir)
	if err != nil {
		return err
	}
	var rows []*row
	for _, store := range []string{"memory", "Redis"} {
		addr := ""
		if store == "Redis" {
			addr = server.Addr()
		}
		s, err := serve(binary, addr)
		if err != nil {
			return err
		}
		defer func() {
			if stopped := s.stop(); err == nil {
				err = stopped
			}
		}()
		for _, p := range protocols {
			for _, n := range inFlight {
				rows = append(rows, &row{store: store, protocol: p, service: s, inFlight: n})
			}
		}
	}
	chosen := choose()
	for i := range cfg.Rounds {
		fmt.Fprintf(cfg.Progress, "%s service: round %d of %d\n", time.Now().Format(time.TimeOnly), i+1, cfg.Rounds)
		for _, r := range rows {
			if err := r.measure(server, chosen, cfg.Long); err != nil {
				return err
			}
		}
	}
	write(cfg, rows, doc)
	return nil
}

// choose returns keys in the order in which they are asked for.
func choose() []string {
	random := rand.New(rand.NewPCG(1, 2))
	chosen := make([]string, load.Picks)
	for i := range chosen {
		chosen[i] = fmt.Sprintf("%06d", random.IntN(keys))
	}
	return chosen
}

func (r *row) measure(server *redistest.Server, chosen []string, long time.Duration) error {
	if _, err := server.Do("FLUSHALL", "SYNC"); err != nil {
		return err
	}
	ask, done, err := r.protocol.dial(r.service)
	if err != nil {
		return err
	}
	defer done()
	var own, redis [2]float64
	note := func(at int) func() error {
		return func() (err error) {
			if own[at], err = r.service.processor(); err != nil {
				return err
			}
			redis[at], err = processor(server)
			return err
		}
	}
	out, err := load.Drive(ask, chosen, r.inFlight, long/4, long, note(0), note(1))
	if err != nil {
		return err
	}
	r.failed.Add(100 * float64(out.Failed) / float64(max(1, out.Failed+out.Decisions)))
	each := 1e6 / float64(max(1, out.Decisions))
	r.perSecond.Add(out.PerSecond)
	r.p50.Add(out.P50)
	r.p99.Add(out.P99)
	r.own.Add((own[1] - own[0]) * each)
	r.redis.Add((redis[1] - redis[0]) * each)
	return nil
}

// processor returns the seconds of processor time that a Redis server has used.
func processor(server *redistest.Server) (sum float64, err error) {
	text, err := server.Do("INFO", "cpu")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(fmt.Sprint(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += seconds
		}
	}
	return sum, nil
}

func write(cfg Config, rows []*row, doc *report.Document) {
	doc.Section("The service", fmt.Sprintf(`
`+"`sash serve`"+` as its clients meet it: one request, one descriptor, %d subjects, a limit of 10,000 a minute that nobody reaches. gRPC is asked over %d connections,
HTTP over one for each call in flight. The client, the service and Redis share the machine's processors, so a service that has them to itself is
faster; processor time a decision is what to plan with. Calls that Redis did not answer within the budget of 50 ms count as failed: they are answered with an error,
as on_unavailable: closed is. Medians of %d rounds of %v, with the lowest and the highest.`, keys, connections, cfg.Rounds, cfg.Long))
	table := &report.Table{Head: []string{"store, protocol, in flight", "decisions/s", "p50, µs", "p99, µs", "service µs a decision", "Redis µs a decision"}}
	for _, r := range rows {
		redis := "-"
		if r.store == "Redis" {
			redis = r.redis.String()
		}
		name := fmt.Sprintf("%s, %s, %d", r.store, r.protocol.name, r.inFlight)
		if f := r.failed.Max(); f > 0 {
			name += fmt.Sprintf(" (up to %.2f %% failed)", f)
		}
		table.Row(name, &r.perSecond, &r.p50, &r.p99, &r.own, redis)
	}
	doc.Table(table)
}
