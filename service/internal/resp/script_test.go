package resp

import (
	"context"
	"crypto/sha1"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/servertest"
)

// A script that calls CL.THROTTLE is that command, in whatever way it is written.
func TestScriptsThatCallThrottle(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	eval := func(command, script, want string, args ...string) {
		t.Helper()
		c.send(encode(append([]string{command, script}, args...)...))
		c.gets(want)
	}
	for i, script := range []string{
		"return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])",
		"return redis.pcall(\"cl.throttle\",KEYS[1],ARGV[1],ARGV[2],ARGV[3]);",
		"\n  return redis.call (\n 'CL.Throttle' ,\n\tKEYS[ 1 ], '9', \"10\", 60 , 1\n)\n",
		"return redis.call('CL.THROTTLE', ARGV[4], ARGV[1], ARGV[2], ARGV[3])",
	} {
		key := fmt.Sprint("key ", i)
		for left, command := range []string{"EVAL", "eval"} {
			eval(command, script, fmt.Sprintf("[0 10 %d -1 60]", 9-left), "1", key, "9", "10", "60", key)
		}
	}
	const known = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1])"
	for _, script := range []string{
		"", "return 1", "redis.call('CL.THROTTLE', KEYS[1])", "return redis.call('GET', KEYS[1])", "return redis.call(KEYS[1])",
		"return redis.call('CL.THROTTLE', KEYS[1]) + 1", "return redis.call('CL.THROTTLE', KEYS[1],)", "return redis.call('CL.THROTTLE' KEYS[1])",
		"local a = 1 return redis.call('CL.THROTTLE', KEYS[1])", "return redis.call('CL.THROTTLE', redis.call('TIME'))",
		"return redis.call('CL.THROTTLE', 'it\\'s')", "return redis.call('CL.THROTTLE', KEYS[i])", "return redis.call()",
		"return redis.call('CL.THROTTLE', '" + strings.Repeat("x", maxScript) + "')",
	} {
		eval("EVAL", script, "-ERR the only script here is return redis.call('CL.THROTTLE', KEYS[1]", "1", "key")
	}
	for want, args := range map[string][]string{
		"-ERR Number of keys can't be negative or greater than number of args": {"one", "key"},
		"-ERR Number of keys can't be negative":                                {"-1", "key"},
		"-ERR Number of keys can't be":                                         {"2", "key"},
		"-ERR Lua redis lib command arguments must be strings or integers":     {"0", "key"},
		"-Cell error: Usage: cl.throttle":                                      {"1", "key", "9"},
	} {
		eval("EVAL", known, want, args...)
	}
}

// The port remembers the scripts of callers with the right to set limits, up to a bound.
func TestScriptsAreKnownByTheirSum(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	const script, sum = "return redis.call('CL.THROTTLE', KEYS[1], 9, 10, 60)", "7aa9893e7e23aee1b470fbd492e0efa687867688"
	c.is("EVALSHA "+sum+" 1 key", "-NOSCRIPT No matching script. Please use EVAL.")
	c.send(encode("SCRIPT", "LOAD", script))
	c.gets(sum)
	c.is("SCRIPT EXISTS "+sum+" "+strings.Repeat("0", 40), "[1 0]")
	c.is("EVALSHA "+strings.ToUpper(sum)+" 1 key", "[0 10 9 -1 60]")
	c.begins("SCRIPT FLUSH SYNC", "-ERR unknown subcommand")
	all := []string{sum}
	for i := range mostScripts {
		text := fmt.Sprintf("return redis.call('CL.THROTTLE', KEYS[1], %d, 10, 60)", 10+i)
		c.send(encode("EVAL", text, "1", fmt.Sprint(i)))
		_ = c.read()
		all = append(all, fmt.Sprintf("%x", sha1.Sum([]byte(text))))
		c.is("EVALSHA "+all[i+1]+" 0", "-ERR Lua redis lib command arguments must be strings or integers")
	}
	if got := strings.Count(c.do("SCRIPT EXISTS "+strings.Join(all, " ")), "1"); got > mostScripts {
		t.Errorf("%d scripts are known, more than %d", got, mostScripts)
	}
	stranger := open(t, "").connect(t)
	stranger.send(encode("SCRIPT", "LOAD", script) + encode("EVAL", script, "1", "key"))
	stranger.gets("-NOPERM ", "-NOPERM ")
	stranger.is("SCRIPT EXISTS "+sum, "[0]")
}

// DEL forgets what was charged to keys of commands with LIMIT, and says how many of them it had.
func TestDelForgetsKeys(t *testing.T) {
	p := open(t, everything)
	c := p.connect(t)
	for _, command := range []string{"DEL", "unlink"} {
		c.begins("CL.THROTTLE a 0 1 60", "[0 1 0 ")
		c.begins("SASH.ALLOW b LIMIT 2/1h COST 2", "[allowed 1 remaining 0 ")
		c.is(command+" a nothing b", "2")
		c.is(command+" a b", "0")
	}
	c.begins("DEL  ", "-ERR wrong number of arguments for 'del' command")
	c.begins("CL.THROTTLE a 0 1 60", "[0 1 0 ")
	c.send(encode("DEL", "a", ""))
	c.gets("-ERR the key is empty")
	c.is("DEL a", "1")
	memory, deadlines := memstore.New(nil), make(map[time.Time]bool)
	store := stands{driver.Passthrough{Store: memory}, func(ctx context.Context, b *driver.Batch) error {
		deadline, _ := ctx.Deadline()
		deadlines[deadline] = true
		return memory.Do(ctx, b)
	}}
	p = &port{}
	p.listen(t, Server{}, New(servertest.Decider(t, store, rules), &Options{Access: servertest.Gate(t, everything)}))
	if p.connect(t).is("DEL a b c", "0"); len(deadlines) != 3 {
		t.Errorf("three keys have the time of %d", len(deadlines))
	}
	open(t, "anonymous: {allow: [decide, override]}\n").connect(t).begins("DEL a", "-NOAUTH Authentication required. not authenticated: callers without a token may not give units back")
}

// A script parses to the operands from which it was written, and every other text is an error.
func FuzzScript(f *testing.F) {
	f.Add("return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], \"15\", 30, 60)")
	f.Add("return redis.pcall('cl.throttle');")
	f.Add("return redis.call('CL.THROTTLE', ''..'a')")
	f.Fuzz(func(t *testing.T, script string) {
		call, err := parseScript(script)
		if err != nil {
			return
		}
		again := "return redis.call('CL.THROTTLE'"
		for _, o := range call {
			switch {
			case o.from != "":
				again += fmt.Sprintf(", %s[%d]", o.from, o.n)
			case strings.Contains(o.text, "'"):
				again += `, "` + o.text + `"`
			default:
				again += ", '" + o.text + "'"
			}
		}
		twice, err := parseScript(again + ")")
		if len(again) < maxScript && (err != nil || fmt.Sprint(twice) != fmt.Sprint(call)) {
			t.Fatalf("%q is %v, and %q is %v, %v", script, call, again, twice, err)
		}
	})
}

// stands is a store in which do answers for another one.
type stands struct {
	driver.Passthrough
	do func(context.Context, *driver.Batch) error
}

func (s stands) Do(ctx context.Context, b *driver.Batch) error { return s.do(ctx, b) }
