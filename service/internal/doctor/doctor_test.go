package doctor

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/driver"
	"example.com/sash/internal/redistest"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/redisclient"
	"example.com/sash/service/internal/servertest"
	"example.com/sash/service/internal/verify"
)

// What is closed leaves no goroutine behind.
func TestMain(m *testing.M) { servertest.NoLeak(m) }

func run(t *testing.T, url string) []Finding {
	t.Helper()
	client := servertest.Must(redisclient.New(url))(t)
	defer client.Close()
	return servertest.Must(Run(t.Context(), client, redisstore.DefaultPrefix, time.Second))(t)
}

// worst returns the worst finding of a check.
func worst(findings []Finding, check string) Finding {
	order := []Level{OK, Unchecked, Warn, Fail}
	out := Finding{Level: "none"}
	for _, f := range findings {
		if f.Check == check && (slices.Index(order, f.Level) > slices.Index(order, out.Level)) {
			out = f
		}
	}
	return out
}

func TestFindings(t *testing.T) {
	plain := redistest.Start(t)
	for _, c := range []struct {
		name string
		args []string
		want map[string]Level
		seen string // somewhere
	}{
		{"as Debian starts it", nil, map[string]Level{
			"version": OK, "eviction": OK, "memory": Warn, "persistence": Warn, "replication": Warn, "clock": OK, "scripts": OK, "latency": OK, "acl": Warn,
		}, "user default may do what is needed, and read the configuration"},
		{"a cache", []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, map[string]Level{"eviction": Fail, "memory": OK}, "admitted a whole limit again"},
		{"a cache of what expires", []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}, map[string]Level{"eviction": Fail}, "volatile-ttl"},
		{"a cache without a bound", []string{"--maxmemory-policy", "allkeys-lru"}, map[string]Level{"eviction": Warn}, "without effect as long as"},
		{"full", []string{"--maxmemory", "512kb"}, map[string]Level{"memory": Fail, "scripts": Fail}, "OOM"},
		{"append-only", []string{"--appendonly", "yes"}, map[string]Level{"persistence": OK}, "appendfsync everysec"},
		{"snapshots", []string{"--save", "60", "1"}, map[string]Level{"persistence": Warn}, "snapshots only"},
		{"replicas wanted", []string{"--min-replicas-to-write", "1"}, map[string]Level{"replication": Fail, "scripts": Fail}, "NOREPLICAS"},
		{"a replica", append([]string{"--replicaof"}, strings.Split(plain.Addr(), ":")...), map[string]Level{"replication": Fail, "scripts": Fail}, "use the primary's address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t, c.args...)
			if c.name == "replicas wanted" && strings.HasPrefix(server.Info(t, "server", "redis_version"), "6.") {
				return // it charges without: TestRedis6DoesNotAskForReplicas
			}
			findings := run(t, "redis://"+server.Addr())
			all := ""
			for _, f := range findings {
				all += f.Seen + "\n" + f.Do + "\n"
				if f.Level == Fail && f.Do == "" {
					t.Errorf("%+v does not say what to do", f)
				}
			}
			for check, level := range c.want {
				if got := worst(findings, check); got.Level != level {
					t.Errorf("%s: %+v, want %s", check, got, level)
				}
			}
			if !strings.Contains(all, c.seen) {
				t.Errorf("%q is not in\n%s", c.seen, all)
			}
			for _, key := range server.Must(t, "KEYS", "*").([]any) {
				name, lives := key.(string), server.Must(t, "PTTL", key.(string)).(int64)
				settled := strings.HasPrefix(name, "sash:settled:") && lives <= 11_000
				once := strings.HasPrefix(name, "sash:once:") && lives <= driver.RepeatTime.Milliseconds()
				beat := strings.HasPrefix(name, "sash:instances:doctor-") && lives <= window.Milliseconds()
				if !settled && !once && !beat {
					t.Errorf("the key %s is left", key)
				}
			}
		})
	}
}

// Redis 6.2 does not apply min-replicas-to-write to scripts, whatever the setting. A replica may follow or not.
func TestRedis6DoesNotAskForReplicas(t *testing.T) {
	for _, c := range []struct {
		version, least, replica string
		level                   Level
		do                      string
	}{
		{"6.2.5", "1", "", Warn, "upgrade to Redis 7.0"},
		{"6.2.5", "1", "online", Warn, "upgrade to Redis 7.0"},
		{"6.2.5", "0", "online", Warn, "upgrade to Redis 7.0"},
		{"7.0.15", "1", "", Fail, "bring the replicas back"},
		{"7.0.15", "1", "online", OK, ""},
		{"7.0.15", "0", "online", Warn, "CONFIG SET min-replicas-to-write 1"},
	} {
		n := node{info: map[string]string{"redis_version": c.version, "role": "master"}, config: map[string]string{"min-replicas-to-write": c.least}}
		if c.replica != "" {
			n.info["connected_slaves"] = "1"
			n.info["slave0"] = "ip=127.0.0.1,port=1,state=" + c.replica + ",offset=1,lag=0"
		}
		var v visit
		v.replication(n)
		if len(v.findings) != 1 || v.findings[0].Level != c.level || !strings.Contains(v.findings[0].Do, c.do) {
			t.Errorf("%+v: %+v", c, v.findings)
		}
	}
}

func TestVersionsThatSupportTheScripts(t *testing.T) {
	for version, want := range map[string]Level{"6.0.16": Fail, "6.2.0": OK, "unknown": Unchecked} {
		var v visit
		v.version(node{info: map[string]string{"redis_version": version}})
		if got := v.findings[0]; got.Level != want || (got.Do != "") != (want == Fail) {
			t.Errorf("%s: %+v", version, got)
		}
	}
}

// The printed ACL line suffices for a limiter, and for the doctor.
func TestTheRightsThatArePrintedAreEnough(t *testing.T) {
	single := redistest.Start(t)
	cluster, clusterURL := servertest.StartCluster(t)
	watched := servertest.StartWatched(t)
	for name, c := range map[string]struct {
		servers []*redistest.Server
		url     string
		way     Way
	}{
		"one server":       {[]*redistest.Server{single}, "redis://limiter:PASSWORD@" + single.Addr() + "/0", Way{Prefix: redisstore.DefaultPrefix}},
		"another database": {[]*redistest.Server{single}, "redis://limiter:PASSWORD@" + single.Addr() + "/1", Way{Database: true, Prefix: redisstore.DefaultPrefix}},
		"by Sentinel":      {[]*redistest.Server{watched.Primary, watched.Replica}, strings.Replace(watched.URL(), "://", "://limiter:PASSWORD@", 1), Way{Sentinel: true, Prefix: redisstore.DefaultPrefix}},
		"a cluster":        {cluster.Nodes(), strings.Replace(clusterURL, "://", "://limiter:PASSWORD@", 1), Way{Cluster: true, Prefix: redisstore.DefaultPrefix}},
	} {
		t.Run(name, func(t *testing.T) {
			line := Line("limiter", c.way)
			for _, s := range c.servers {
				s.Must(t, strings.Fields(line)...)
			}
			findings := run(t, c.url)
			for check, level := range map[string]Level{"version": Unchecked, "scripts": OK, "latency": OK, "clock": OK, "acl": OK} {
				if got := worst(findings, check); got.Level != level {
					t.Errorf("%s: %+v, want %s", check, got, level)
				}
			}
			if acl := worst(findings, "acl"); !strings.HasSuffix(acl.Do, line) {
				t.Errorf("the line is %q, want %q", acl.Do, line)
			}
			client := servertest.Must(redisclient.New(c.url))(t)
			defer client.Close()
			report, err := verify.Run(t.Context(), client.Store(nil), verify.Options{For: time.Second, Workers: 2})
			if err != nil || report.Unanswered > 0 {
				t.Errorf("%v, %+v", err, report)
			}
		})
	}
}

// An operator copies the line into redis-cli, which reads quotes as the server itself does in a line without a protocol.
func TestTheLineIsOneThatRedisReads(t *testing.T) {
	server := redistest.Start(t)
	for _, prefix := range []string{"sash:", "a*b:", "a?[x]:", `we\ird:`, "sp ace:", "tab\t:", "ü:", "{tag}:", "~all:", `"q:`, "it's:", `"both' \:`} {
		server.Must(t, "ACL", "DELUSER", "limiter")
		conn := servertest.Must(net.Dial("tcp", server.Addr()))(t)
		_, err := conn.Write([]byte(Line("limiter", Way{Prefix: prefix}) + "\r\n"))
		answer, err2 := bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
		if err != nil || err2 != nil || answer != "+OK\r\n" {
			t.Errorf("%q: %q, %v, %v", prefix, answer, err, err2)
			continue
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "limiter", Password: "PASSWORD"})
		own, other := client.Eval(t.Context(), "return 1", []string{prefix + "x"}).Err(), client.Eval(t.Context(), "return 1", []string{"other" + prefix}).Err()
		if own != nil || !forbidden(other) {
			t.Errorf("%q: its own key: %v, another: %v", prefix, own, other)
		}
		_ = client.Close()
	}
}

func TestEveryRightThatIsPrintedIsNeeded(t *testing.T) {
	server := redistest.Start(t)
	line := strings.Fields(Line("limiter", Way{Prefix: redisstore.DefaultPrefix}))
	for _, right := range line {
		// Only after a clock that went back, after a long time, of many entries, or for replicas: not within a doctor's visit.
		rare := []string{"+del", "+zremrangebyrank", "+zrank", "+wait"}
		if !strings.HasPrefix(right, "+") || right == "+ping" || slices.Contains(rare, right) {
			continue
		}
		server.Must(t, "ACL", "DELUSER", "limiter")
		server.Must(t, append(slices.Clone(line), "-"+right[1:])...)
		findings := run(t, "redis://limiter:PASSWORD@"+server.Addr())
		if got := worst(findings, "scripts"); got.Level != Fail || !strings.Contains(got.Do, "ACL line") {
			t.Errorf("without %s: %+v", right, got)
		}
		if got := worst(findings, "acl"); got.Level != Fail {
			t.Errorf("without %s: %+v", right, got)
		}
	}
}

// count returns how many findings of a check are ok.
func count(findings []Finding, check string) (n int) {
	for _, f := range findings {
		if f.Check == check && f.Level == OK {
			n++
		}
	}
	return n
}

func TestSentinels(t *testing.T) {
	w := servertest.StartWatched(t)
	expect := func(when, check string, level Level, text string) {
		t.Helper()
		if got := worst(run(t, w.URL()), check); got.Level != level || !strings.Contains(got.Seen+got.Do, text) {
			t.Errorf("%s: %+v, want %s with %q", when, got, level, text)
		}
	}
	expect("at first", "sentinel", OK, w.Primary.Addr())
	expect("at first", "replication", Warn, "min-replicas-to-write 1")
	if n := count(run(t, w.URL()), "clock"); n != 2 {
		t.Errorf("%d clocks were read, of a primary and a replica", n)
	}
	w.Primary.Must(t, "ACL", "SETUSER", "default", "-role")
	expect("without ROLE", "sentinel", Fail, "+role")
	w.Primary.Must(t, "ACL", "SETUSER", "default", "+role")
	w.Sentinels.Servers[2].Stop()
	expect("without one Sentinel", "sentinel", Warn, "2 of 3 Sentinels answer")
}

func TestCluster(t *testing.T) {
	cluster, url := servertest.StartCluster(t)
	servertest.Wait(t, "the doctor does not see all replicas", func() bool { return worst(run(t, url), "cluster").Level == OK })
	findings := run(t, url)
	if got := worst(findings, "coverage"); got.Level != Warn || !strings.Contains(got.Do, "cluster-require-full-coverage no") {
		t.Errorf("with Redis's default: %+v", got)
	}
	for _, node := range cluster.Nodes() {
		node.Must(t, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	}
	findings = run(t, url)
	if n, m := count(findings, "clock"), count(findings, "latency"); n != 6 || m != 3 {
		t.Errorf("%d clocks and the latency of %d nodes were read, of three primaries with a replica each", n, m)
	}
	if coverage, scripts := worst(findings, "coverage"), worst(findings, "scripts"); coverage.Level != OK || scripts.Level != OK {
		t.Errorf("%+v, %+v", coverage, scripts)
	}
	_, port, _ := strings.Cut(redistest.StartCluster(t, redistest.ClusterOptions{}).Primaries[0].Addr(), ":")
	if got := worst(run(t, "redis+cluster://127.0.0.1:"+port), "cluster"); got.Level != Warn || !strings.Contains(got.Seen, "3 primaries hold 16384 of 16384 slots; 3 of them have no replica") {
		t.Errorf("without replicas: %+v", got)
	}
}

func TestAClockThatIsAnHourAhead(t *testing.T) {
	server, clock := redistest.StartWithClock(t)
	clock.Move(t, time.Hour)
	got := worst(run(t, server.Addr()), "clock")
	if got.Level != Warn || !strings.HasPrefix(got.Seen, "1h0m0s ahead") && !strings.HasPrefix(got.Seen, "59m59") && !strings.HasPrefix(got.Seen, "1h0m0.0") {
		t.Errorf("%+v", got)
	}
}

func TestClocksThatDiffer(t *testing.T) {
	for _, c := range []struct {
		ahead []time.Duration
		want  []Level
	}{
		{[]time.Duration{time.Millisecond, -time.Millisecond}, []Level{OK, OK}},
		{[]time.Duration{time.Second}, []Level{Warn}},
		{[]time.Duration{150 * time.Millisecond, -150 * time.Millisecond}, []Level{OK, OK, Warn}},
		{[]time.Duration{time.Hour, 0}, []Level{Warn, OK, Fail}},
		{nil, nil},
	} {
		var read []clock
		for _, d := range c.ahead {
			read = append(read, clock{"a:1", d})
		}
		var got []Level
		for _, f := range judgeClocks(read) {
			got = append(got, f.Level)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.ahead, got, c.want)
		}
	}
}

func TestTheLineOfTheDocumentation(t *testing.T) {
	page := servertest.Must(os.ReadFile("../../../docs/envoy.md"))(t)
	if line := Line("limiter", Way{Prefix: redisstore.DefaultPrefix}); !strings.Contains(string(page), "\n"+line+"\n") {
		t.Errorf("docs/envoy.md does not have %s", line)
	}
}
