package main

import (
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/service/internal/servertest"
)

// With 100 the attack is the one that took 1.2 GB before calls were bounded.
var strangers = flag.Int("strangers", 5, "how many connections open a thousand half-sent calls each")

// memory returns the memory of the service's process in MiB: VmRSS, what it has, or VmHWM, the most that it had.
func (p *service) memory(t *testing.T, which string) int {
	t.Helper()
	text := readFile(t, fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	kilobytes, err := strconv.Atoi(regexp.MustCompile(which + `:\s*(\d+)`).FindStringSubmatch(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes >> 10
}

// Calls whose messages never come end after ten seconds; meanwhile there are at most 10,000.
func TestHalfSentCallsTakeBoundedMemory(t *testing.T) {
	t.Parallel() // it waits for ten seconds
	p := spawn(t, nil)
	before := p.memory(t, "VmRSS")
	var all []*servertest.Frames
	for range *strangers {
		f := servertest.DialFrames(t, p.grpc)
		all = append(all, f)
		for range 1000 {
			if _, err := f.Begin(pb.RateLimitService_ShouldRateLimit_FullMethodName); err != nil {
				t.Fatal(err)
			}
		}
	}
	ended := func() (n int) {
		for _, f := range all {
			n += f.Ended()
		}
		return n
	}
	early := ended()
	l, began := &load{key: "a"}, time.Now()
	l.once(t, p)
	took := time.Since(began)
	if l.answered.Load() != 1 {
		t.Errorf("a call meanwhile fails: %v", *l.failed.Load())
	}
	servertest.Wait(t, "half-sent calls have not ended", func() bool { return ended() >= len(all)*1000 })
	peak := p.memory(t, "VmHWM")
	t.Logf("%d half-sent calls, %d of them ended at once; %d MiB before, %d at most, %d after; a call meanwhile took %v",
		len(all)*1000, early, before, peak, p.memory(t, "VmRSS"), took)
	if peak > before+500 {
		t.Error("that is too much")
	}
}
