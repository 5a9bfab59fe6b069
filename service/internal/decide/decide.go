// Package decide is the engine of the service: it takes the parts of a request, asks the store by the configuration in
// use, and returns an answer for each part. It knows no protocol.
package decide

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/config"
)

// A Decider decides requests. It is safe for concurrent use.
type Decider struct {
	stores    Stores
	instance  string // names this process among all
	rules     atomic.Pointer[rules]
	observers []Observer
	keys      [][]byte // under which secrets are named: the first names, and exceptions under all hold
	queues    queues

	changing sync.Mutex  // held while rules are replaced
	excepted []Exception // guarded by changing
}

// New is NewPlaced with one store for every place.
func New(cfg *config.Config, store driver.Store) (*Decider, error) {
	return NewPlaced(cfg, func(config.Place) (driver.Store, error) { return store, nil })
}

// NewPlaced returns a decider over the stores of places, which stay the caller's. Errors are those of Use.
func NewPlaced(cfg *config.Config, stores Stores) (*Decider, error) {
	d := &Decider{stores: stores, instance: rand.Text(), keys: ownKey()}
	return d, d.Use(cfg)
}

// Use replaces the configuration. Requests that are being decided end under the one before. After an
// error the configuration is unchanged.
func (d *Decider) Use(cfg *config.Config) error {
	if err := d.checkSecrets(cfg); err != nil {
		return err
	}
	r, err := d.compile(cfg)
	if err != nil {
		return err
	}
	d.changing.Lock()
	defer d.changing.Unlock()
	d.except(r, d.excepted)
	d.rules.Store(r)
	return nil
}

// Config returns the configuration in use.
func (d *Decider) Config() *config.Config { return d.rules.Load().config }

// Decide decides a request, and returns one answer for each part. The parts that bind are charged when all of them
// have room, and none is otherwise but those of Part.Always. Parts that do not bind are charged, each by itself, when the others
// were admitted, and so are quotas, one of which must have room: see Request.Quota.
//
// Up to sash.MaxSubjects parts of one algorithm and resolution are one atomic step in memory, on one Redis
// server, and on a cluster where they share a slot. More are decided step by step: see
// driver.DecideInSteps.
//
// Errors are sash.ErrInvalidLimit for an override that cannot be enforced, sash.ErrUnsupported, sash.ErrUnavailable,
// config.ErrNone, and the context's; and, unless the request is Lenient, config.ErrUnknownDomain, sash.ErrInvalidCost and
// sash.ErrCostAboveLimit.
func (d *Decider) Decide(ctx context.Context, req Request) ([]Answer, error) {
	answers, err := d.observed(ctx, &req, (*Decider).charge)
	if err != nil {
		return nil, err
	}
	return answers, nil
}

// observed resolves a request, has its parts charged, compares candidates, and notifies observers. After an error the
// answers are what is known.
func (d *Decider) observed(ctx context.Context, req *Request, charge func(*Decider, context.Context, *Request, []Answer) error) ([]Answer, error) {
	began := time.Now()
	answers := make([]Answer, len(req.Parts))
	err := d.resolve(req, answers)
	if err == nil {
		if len(answers) == 1 && answers[0].queue > 0 {
			defer d.inQueue(ctx, &answers[0])()
		}
		if err = charge(d, ctx, req, answers); err == nil {
			d.compare(ctx, answers)
		}
	}
	d.observe(ctx, req, answers, err, began)
	return answers, err
}

// charge asks the store for what the parts ask: first those that bind, with the quotas, and then what refuses nothing.
func (d *Decider) charge(ctx context.Context, req *Request, answers []Answer) error {
	if req.ID != "" {
		return d.chargeOnce(ctx, req, &answers[0])
	}
	if req.Counting != nil {
		return d.count(ctx, req, answers)
	}
	var few [4]*Answer
	binding, quotas := few[:0], false
	for i := range answers {
		switch a := &answers[i]; {
		case !a.Limited() || a.refund || a.Soft():
		case a.quota:
			quotas = true
		default:
			binding = append(binding, a)
		}
	}
	var admitted bool
	var err error
	if quotas {
		admitted, err = d.besideQuotas(ctx, binding, answers)
	} else {
		admitted, err = d.together(ctx, binding)
	}
	if err != nil {
		return failure(ctx, err)
	}
	for i := range answers {
		a := &answers[i]
		if !a.Limited() || a.refund || a.quota && quotas || !a.Soft() {
			continue
		}
		if err := soften(ctx, a, a.alone(ctx, admitted)); err != nil {
			return err
		}
	}
	for i := range answers {
		a := &answers[i]
		a.insist(ctx, admitted)
		if a.Limited() && a.refund {
			if err := d.giveBack(ctx, a, admitted && a.limits.refunds(a.Rule)); err != nil {
				return failure(ctx, err)
			}
		}
	}
	return nil
}

// soften returns the error of a part, unless a store that fails must not stop a request there: a limit that does not
// bind stops nothing.
func soften(ctx context.Context, a *Answer, err error) error {
	if err == nil {
		return nil
	}
	err = failure(ctx, err)
	if !a.Soft() || !errors.Is(err, sash.ErrUnavailable) {
		return err
	}
	a.Source, a.Cause = sash.FromPolicy, err
	return nil
}

// Causes are why the store did not decide. They do not disclose where it is.
var Causes = slices.Sorted(maps.Keys(Reasons))

// Reasons are the Causes in words. The subject of each is the store.
var Reasons = map[string]string{
	"budget":        "does not answer in time",
	"busy":          "is not called, because too many calls are under way",
	"overload":      "answers, but this instance has more calls than it answers in time",
	"down":          "is not called, because it failed before",
	"rejected":      "rejects a call because of its key or its ID",
	"refused":       "accepts no connections",
	"lost":          "ends connections",
	"dns":           "has a name without an address",
	"tls":           "fails the TLS handshake",
	"protocol":      "is not a Redis",
	"auth":          "rejects the user, the password or the user's rights",
	"loading":       "is loading its data",
	"readonly":      "is a replica, which takes no writes",
	"replicas":      "has too few replicas, or too few confirmed",
	"script":        "is busy with another client's script",
	"memory":        "has no memory left, or cannot write to disk",
	"cluster":       "has no node for a slot",
	"full":          "is full, and replaces the subjects that have used least, or takes no new ones",
	"misconfigured": "rejects all calls of this service",
	"error":         "fails",
}

// remedies are what an operator does about causes that an address in a command may have.
var remedies = map[string]string{
	"budget":  "no answer in time: a firewall, a server that hangs, or a port of something else?",
	"refused": "is the server running, and is this its address?",
	"lost":    "the server ended the connection: is it a TLS port? that is rediss://",
	"dns":     "is the host's name right?",
	"auth": "are the user and the password right? they are redis://user:password@host:port, where what is no letter or digit is percent-encoded, " +
		"and none if the server has none; sash doctor prints the rights that a user needs",
}

// Remedy adds to the error of a first call what to do about it, if known.
func Remedy(err error) error {
	if err == nil || strings.Contains(err.Error(), "TLS handshake") { // which says it
		return err
	}
	if do := remedies[Cause(err)]; do != "" {
		return fmt.Errorf("%w (%s)", err, do)
	}
	return err
}

// Rejected says to a caller why a call with the cause rejected has no decision.
const Rejected = "the store works and rejects this call, because the key holds something else: " +
	"there is no decision, and other keys are decided"

// Cause returns one of Causes.
func Cause(err error) string {
	switch {
	case errors.Is(err, memstore.ErrFull):
		return "full"
	case errors.Is(err, failover.ErrOverload):
		return "overload"
	case errors.Is(err, failover.ErrDown):
		return "down"
	case errors.Is(err, failover.ErrBusy):
		return "busy"
	case errors.Is(err, driver.ErrRejected):
		return "rejected"
	case errors.Is(err, failover.ErrBudget), errors.Is(err, context.DeadlineExceeded):
		return "budget"
	}
	if cause := ofServer(err.Error()); cause != "" {
		return cause
	}
	if cause := ofConnection(err); cause != "" {
		return cause
	}
	if redisstore.Misconfigured(err) {
		return "misconfigured"
	}
	return "error"
}

// Asked reports whether a call may have reached the store although its cause is overload: it had its turn, and no answer.
func Asked(err error) bool {
	return errors.Is(err, failover.ErrOverload) && errors.Is(err, failover.ErrBudget)
}

// ofServer returns the cause of an error that begins with a word of Redis, which clients and scripts wrap, or "".
func ofServer(text string) string {
	for _, c := range [...]struct{ word, cause string }{
		{"NOAUTH ", "auth"}, {"WRONGPASS ", "auth"}, {"NOPERM ", "auth"}, {"DENIED ", "auth"}, {"invalid password", "auth"},
		{"called without any password", "auth"},
		{"LOADING ", "loading"}, {"READONLY ", "readonly"}, {"MASTERDOWN ", "readonly"}, {"NOREPLICAS ", "replicas"},
		{"replicas confirmed", "replicas"}, {"BUSY ", "script"}, {"OOM ", "memory"}, {"MISCONF ", "memory"},
		{"CLUSTERDOWN ", "cluster"}, {"TRYAGAIN ", "cluster"},
	} {
		if strings.Contains(text, c.word) {
			return c.cause
		}
	}
	return ""
}

// ofConnection returns the cause of an error of the network, or "".
func ofConnection(err error) string {
	var name *net.DNSError
	var foreign *redisstore.ForeignError
	var timed net.Error
	var alert tls.AlertError
	var unverified *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	text := err.Error()
	switch {
	case errors.As(err, &name):
		return "dns"
	case errors.As(err, &foreign):
		if strings.HasPrefix(foreign.Said, "\x15\x03") {
			return "tls"
		}
		return "protocol"
	case errors.As(err, &alert), errors.As(err, &unverified), errors.As(err, &record),
		strings.Contains(text, "tls: "): // crypto/tls has no type for the others, such as a version that is not supported
		return "tls"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		strings.Contains(text, "max number of clients"):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timed) && timed.Timeout():
		return "budget"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "lost"
	}
	return ""
}
