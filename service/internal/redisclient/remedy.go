package redisclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Remedy adds to the error of a first call what to do about it, if known.
func Remedy(err error) error {
	if do := remedy(err); do != "" {
		return fmt.Errorf("%w (%s)", err, do)
	}
	return err
}

func remedy(err error) string {
	var name *net.DNSError
	var late net.Error
	said := func(words string) bool { return err != nil && strings.Contains(err.Error(), words) }
	switch {
	case err == nil, errors.Is(err, context.Canceled), said("TLS handshake"):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "is the server running, and is this its address?"
	case errors.As(err, &name):
		return "is the host's name right?"
	case said("NOAUTH"):
		return "the server wants a password: redis://user:password@host:port"
	case said("WRONGPASS"), said("invalid password"):
		return "the user or the password is wrong; what is no letter or digit of a password is percent-encoded in a URL"
	case said("called without any password"):
		return "the server has no password: leave it out"
	case said("DB index"):
		return "the number after the slash is that of a database: leave it out for 0"
	case said("NOPERM"):
		return "the user lacks a right: sash doctor prints the ACL line"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the server ended the connection: is it a TLS port? that is rediss://"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &late) && late.Timeout():
		return "no answer in time: a firewall, a server that hangs, or a port of something else?"
	}
	return ""
}
