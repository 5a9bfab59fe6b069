package redistest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Sentinels watch a primary and its replicas. If the primary is down, they promote a replica.
type Sentinels struct {
	// Name is the name of the primary, by which clients ask for its address.
	Name string
	// Servers are the sentinels.
	Servers []*Server
}

// StartSentinels starts three sentinels, and stops them when the test ends. A primary is down when two of
// them have had no answer for the given time. StartSentinels returns when the sentinels know each other and
// the given number of replicas.
func StartSentinels(t testing.TB, primary *Server, replicas int, down time.Duration) *Sentinels {
	t.Helper()
	const name, count, quorum = "sash", 3, 2
	s := &Sentinels{Name: name}
	for range count {
		one := &Server{dir: t.TempDir(), args: []string{"--sentinel"}}
		one.config = func() string {
			return fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
sentinel monitor %s 127.0.0.1 %d %d
sentinel down-after-milliseconds %[3]s %[6]d
sentinel failover-timeout %[3]s 5000
`, one.port, one.dir, name, primary.port, quorum, down.Milliseconds())
		}
		one.begin(t)
		// By default sentinels publish every two seconds and read INFO every ten. Servers older than 7
		// cannot change that, and return an error.
		_, _ = one.Do("SENTINEL", "DEBUG", "INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200")
		s.Servers = append(s.Servers, one)
	}
	await(t, "the sentinels know each other and the replicas", func() bool {
		for _, one := range s.Servers {
			state, _ := one.Must(t, "SENTINEL", "MASTER", name).([]any) // names, each before its value
			others, slaves := slices.Index(state, any("num-other-sentinels")), slices.Index(state, any("num-slaves"))
			if state[others+1] != strconv.Itoa(count-1) || state[slaves+1] != strconv.Itoa(replicas) {
				return false
			}
			if _, err := one.Do("SENTINEL", "CKQUORUM", name); err != nil {
				return false
			}
		}
		return true
	})
	return s
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() []string { return addrs(s.Servers) }

// Primary returns the address of the primary that the first sentinel names.
func (s *Sentinels) Primary(t testing.TB) string {
	t.Helper()
	at, ok := s.Servers[0].Must(t, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name).([]any)
	if !ok || len(at) != 2 {
		t.Fatalf("internal/redistest: the sentinel knows no primary: %v", at)
	}
	return net.JoinHostPort(at[0].(string), at[1].(string))
}

func addrs(servers []*Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}
