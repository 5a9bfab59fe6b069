package logs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// answer runs a command over logs, each a name and its text.
func answer(t *testing.T, args []string, logs ...string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	for i := 0; i < len(logs); i += 2 {
		servertest.Check(t, os.WriteFile(filepath.Base(logs[i]), []byte(logs[i+1]), 0o600))
		args = append(args, logs[i])
	}
	var out, failed bytes.Buffer
	if code := Run(args, strings.NewReader(""), &out, &failed); code != 0 {
		t.Fatalf("exit %d, %s", code, failed.String())
	}
	return out.String()
}

var try = []string{"replay", "--try", "10/1m"}

// A log is as long as it is, whatever of it counts.
func TestAFilteredLogIsNotShort(t *testing.T) {
	log := "time,remote_address,path\n1431800000,192.0.2.1,/\n1431840000,192.0.2.2,/a\n1431840001,192.0.2.3,/a\n1431886400,192.0.2.1,/\n"
	if out := answer(t, append(try, "--where", `path == "/a"`), "access.log", log); strings.Contains(out, "The log lasts") {
		t.Error(out)
	}
	short := answer(t, try, "access.log", strings.Replace(log, "1431886400", "1431882000", 1))
	if !strings.Contains(short, "The log lasts 22h47m, less") {
		t.Error(short)
	}
}

// Only peers of many lines are proposed as proxies, in networks that are small and few.
func TestProxiesAreProposedWithCare(t *testing.T) {
	edges := func(format string, n int) map[string]int64 {
		all := make(map[string]int64)
		for i := range n {
			all[fmt.Sprintf(format, i)] = 50
		}
		return all
	}
	inventor := edges("10.0.0.%d", 2)
	inventor["203.0.113.9"], inventor["203.0.113.8"] = 9, 10 // of 10,000 lines
	v6 := edges("2001:db8::%x", 17)
	for want, tt := range map[string]struct {
		peers  map[string]int64
		behind int64
	}{
		"10.0.0.0/32,10.0.0.1/32,203.0.113.8/32": {inventor, 10_000},
		"10.0.0.0/24":                            {edges("10.0.0.%d", 200), 10_000},
		"2001:db8::/64":                          {v6, 850},
		"10.0.0.0/16":                            {edges("10.0.%d.1", 17), 850},
		"2001:db8::/48":                          {edges("2001:db8:0:%x::1", 17), 850},
		"10.0.3.0/32":                            {edges("10.0.3.%d", 1), 50},
	} {
		if got := proxies(tt.peers, tt.behind); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, peers := range []map[string]int64{
		edges("10.%d.0.1", 17), edges("2001:db8:%x::1", 17), edges("10.0.0.%d", 1), edges("proxy-%d", 1),
	} {
		behind := int64(len(peers)) * 50
		if peers["10.0.0.0"] > 0 {
			behind = 50_001 // none has its share
		}
		if got := proxies(peers, behind); got != "NETWORKS" {
			t.Errorf("%v: %s", peers, got)
		}
	}
}

// A hidden client is in nothing that is said of a broken line.
func TestBrokenLinesNameNoHiddenClient(t *testing.T) {
	good := "192.0.2.1 [17/May/2015:10:05:03 +0000] GET\n"
	log := strings.Replace(good, "192.0.2.1", `203"0.113.7\"7`, 1) + strings.Repeat(good, 20)
	try := slices.Clip(append(try, "--log-format", "$remote_addr [$time_local] $request_method"))
	for _, args := range [][]string{try, slices.Clip(append(try, "--json")), slices.Clip(append(try, "--html", "page.html"))} {
		for _, hide := range []string{"--hide-clients=false", "--hide-clients"} {
			out := answer(t, append(args, hide), "access.log", log)
			page, _ := os.ReadFile("page.html")
			if out += string(page); strings.Contains(out, "0.113") == (hide == "--hide-clients") || !strings.Contains(out, "$remote_addr cannot be ") {
				t.Errorf("%v, %s: %s", args, hide, out)
			}
		}
	}
}

// Advice names the flags that there are, and no file that there cannot be.
func TestAdviceCanBeFollowed(t *testing.T) {
	header, nobody, strangers := "time,remote_address\n", strings.Repeat("1431857103,nobody\n", 100), ""
	for i := range 100 {
		strangers += fmt.Sprintf("1431857103,192.0.2.%d\n", i)
	}
	for name, older := range map[string]string{
		"access.log": " Name the files before it too: access.log.1 access.log\n", "access.log.1": " Name the files before it too, the older files.\n", "today.csv": " Name the files before it too, the older files.\n",
	} {
		for log, flags := range map[string]string{nobody: "see --log-format, --field and --key", strangers: "; --log-format, --field and --key set"} {
			if out := answer(t, try, name, header+log); !strings.Contains(out, older) || !strings.Contains(out, flags) {
				t.Errorf("%s: %s", name, out)
			}
		}
	}
}

// Proxies matter to keys that are computed from the address, whatever other names are in the expression.
func TestOnlyKeysOfTheAddressLookForProxies(t *testing.T) {
	log := "time,remote_address,forwarded_for,x_client\n" + strings.Repeat("1431857103,10.0.0.1,192.0.2.7,a\n", 20)
	policy := "domain: d\ndescriptors:\n- {key: k, limits: [10/1m]}\n"
	for expression, want := range map[string]bool{
		`client`: true, ` client `: true, `remote_address`: true, `prefix(remote_address, 24)`: true, `key(field("x_client"), client)`: true,
		`header("X-Client")`: false, `field("x_client")`: false, `"client"`: false, `forwarded_for`: false, `"remote_address" + path`: false,
	} {
		t.Chdir(t.TempDir())
		file := filepath.Join(t.TempDir(), "policy.yaml")
		servertest.Check(t, os.WriteFile(file, []byte(policy), 0o600))
		for _, args := range [][]string{{"replay", "--try", "10/1m", "--key", expression}, {"replay", "--policy", file, "--entry", "k=" + expression}} {
			if out := answer(t, args, "access.log", log); strings.Contains(out, "--trusted-proxies") != want {
				t.Errorf("%v: %s", args, out)
			}
		}
	}
}

// A duration with a fraction makes no second finer.
func TestWholeSecondsLessADurationAreWholeSeconds(t *testing.T) {
	for at, want := range map[string]bool{"1431857103": true, "1431857103.250": false} {
		log := strings.Repeat("192.0.2.1 "+at+" 0.125 GET\n", 20)
		answer(t, append(try, "--log-format", "$remote_addr $msec $request_time $request_method", "--html", "page.html"), "access.log", log)
		page, err := os.ReadFile("page.html")
		if err != nil || strings.Contains(string(page), "Times are whole seconds") != want {
			t.Errorf("%s: %v, %t expected", at, err, want)
		}
	}
}
