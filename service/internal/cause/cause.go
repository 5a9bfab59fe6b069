// Package cause says why a store did not decide.
package cause

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"example.com/sash/driver"
	"example.com/sash/failover"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
)

// All lists the causes, one word each. They do not disclose where the store is.
var All = slices.Sorted(maps.Keys(Reasons))

// Reasons describes each cause in words. The subject of each text is the store.
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

// remedies says what an operator can do about causes that a wrong address in a command can have.
var remedies = map[string]string{
	"budget":  "no answer in time: a firewall, a server that hangs, or a port of something else?",
	"refused": "is the server running, and is this its address?",
	"lost":    "the server ended the connection: is it a TLS port? that is rediss://",
	"dns":     "is the host's name right?",
	"auth": "are the user and the password right? write redis://user:password@host:port with percent-encoded special characters, " +
		"and leave out what the server does not have; sash doctor prints the rights that a user needs",
}

// Remedy adds the remedy, if one is known, to the error of a command's first call.
func Remedy(err error) error {
	if err == nil || strings.Contains(err.Error(), "TLS handshake") { // which says it
		return err
	}
	if do := remedies[Of(err)]; do != "" {
		return fmt.Errorf("%w (%s)", err, do)
	}
	return err
}

// Of returns the cause of an error.
func Of(err error) string {
	for _, c := range [...]struct {
		is    error
		cause string
	}{
		{memstore.ErrFull, "full"}, {failover.ErrOverload, "overload"}, {failover.ErrDown, "down"}, {failover.ErrBusy, "busy"},
		{driver.ErrRejected, "rejected"}, {failover.ErrBudget, "budget"}, {context.DeadlineExceeded, "budget"},
	} {
		if errors.Is(err, c.is) {
			return c.cause
		}
	}
	cause := cmp.Or(ofServer(err.Error()), ofConnection(err))
	if cause == "" && redisstore.Misconfigured(err) {
		return "misconfigured"
	}
	return cmp.Or(cause, "error")
}

// ofServer returns the cause of an error that begins with an error code of Redis, even if clients or scripts wrapped it, or "".
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

func ofConnection(err error) string {
	text := err.Error()
	foreign, isForeign := errors.AsType[*redisstore.ForeignError](err)
	timed, _ := errors.AsType[net.Error](err)
	switch {
	case is[*net.DNSError](err):
		return "dns"
	case isForeign && !strings.HasPrefix(foreign.Said, "\x15\x03"):
		return "protocol"
	case isForeign, is[tls.AlertError](err), is[*tls.CertificateVerificationError](err), is[tls.RecordHeaderError](err),
		strings.Contains(text, "tls: "): // crypto/tls has no type for its other errors, such as an unsupported version
		return "tls"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		strings.Contains(text, "max number of clients"):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded), timed != nil && timed.Timeout():
		return "budget"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "lost"
	}
	return ""
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
