// Package regionbench has one limit over several regions: a home and regions of redis-server with calling processes, all on
// this machine, and ways between them that delay what passes and can be cut. The processes decide by the library, or ask the
// sash serve of their region. Tests break the ways and the servers while the services decide, and hold every admission
// against the limit by the machine's clock.
package regionbench

import (
	"iter"
	"math/rand/v2"
	"time"
)

// A plan is what one calling process does: open some ways to decide, and make calls at the instants that its streams
// name, whether or not earlier ones are answered.
type plan struct {
	Seed     uint64
	Patience time.Duration // after which a caller leaves
	Deciders []decider
	Streams  []stream
}

// A decider is a way to decide.
type decider struct {
	Kind  kind
	Home  string // the address of the home, by the region's way
	Near  string // the address of the region's Redis
	Limit limit
	Lease time.Duration // the longest
	// Client is goRedis or rueidisName.
	Client string
	Prefix string // of the keys
	// URL is that of the sash serve that decides. Its rule has the key Prefix.
	URL string
}

// A limit is units in any window.
type limit struct {
	Units  int64
	Window time.Duration
}

type kind int

const (
	central kind = iota // every call is decided by the home
	apart               // every call is decided by the region's Redis, which knows of no other
	leased              // calls are decided beside the region's Redis, with units of the home
	served              // calls are decided by a sash serve of the region, which does that
)

const (
	goRedis     = "go-redis"
	rueidisName = "rueidis"
)

// A stream is calls from one instant until another, after the beginning of the run.
type stream struct {
	Decider     int
	Label       int // what the figures are grouped by
	From, Until time.Duration
	Rate        float64 // calls a second
	// Subjects are numbered from First; which of them a call is for follows Zipf's law with Skew, where that is not zero,
	// and the most frequent one is First+Turn.
	First, Subjects, Turn int
	Skew                  float64
	Most                  int64 // units of a call: 1 to Most
}

// A planned call.
type planned struct {
	after   time.Duration // the beginning
	subject int
	cost    int64
}

// calls returns the calls of a stream, which depend on the seed alone.
func (s *stream) calls(seed uint64) iter.Seq[planned] {
	return func(yield func(planned) bool) {
		random := rand.New(rand.NewPCG(seed, 3))
		choose := func() int { return random.IntN(s.Subjects) }
		if s.Skew > 0 {
			zipf := rand.NewZipf(random, s.Skew, 1, uint64(s.Subjects-1))
			choose = func() int { return (int(zipf.Uint64()) + s.Turn) % s.Subjects }
		}
		for at := s.From; ; {
			at += time.Duration(random.ExpFloat64() / s.Rate * float64(time.Second))
			if at >= s.Until {
				return
			}
			if !yield(planned{at, s.First + choose(), 1 + random.Int64N(max(1, s.Most))}) {
				return
			}
		}
	}
}
