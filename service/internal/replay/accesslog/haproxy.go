package accesslog

import (
	"errors"
	"strings"
)

var errHAProxy = errors.New("not of the form ADDRESS:PORT [TIME] FRONTEND BACKEND/SERVER TIMES STATUS BYTES … \"REQUEST\"")

// The fields of a line of HAProxy behind the time, at their positions.
const (
	haFrontend = iota
	haServer
	haTimes
	haStatus
	haBytes
	haRequestCookie
	haResponseCookie
	haTermination
	haConnections
	haQueues
	haFields
)

// parseHAProxy parses a line of HAProxy's HTTP log (option httplog, and httpslog). Its times have no zone and count as UTC.
func parseHAProxy(line string, r *Record) error {
	address, line, ok := strings.Cut(line, " [")
	if !ok || strings.IndexByte(address, ' ') >= 0 {
		return errHAProxy
	}
	colon := strings.LastIndexByte(address, ':') // an IPv6 address has no brackets
	if colon < 1 {
		return errHAProxy
	}
	at, line, ok := strings.Cut(line, "] ")
	if !ok {
		return errHAProxy
	}
	var f haproxyLine
	for i := range f {
		if f[i], line, ok = strings.Cut(line, " "); !ok || f[i] == "" {
			return errHAProxy
		}
	}
	if strings.Count(f[haTimes], "/") < 3 || !strings.Contains(f[haServer], "/") {
		return errHAProxy
	}
	var err error
	if r.Time, err = parseTime(at); err != nil {
		return err
	}
	if f[haStatus] != "-1" { // no response
		if err = r.setStatus(f[haStatus]); err != nil {
			return err
		}
	}
	if err = r.setBytes(strings.TrimPrefix(f[haBytes], "+")); err != nil {
		return err
	}
	r.RemoteAddress = address[:colon]
	if total := strings.TrimPrefix(f[haTimes][strings.LastIndexByte(f[haTimes], '/')+1:], "+"); !strings.HasPrefix(total, "-") {
		r.setDuration(total)
	}
	for strings.HasPrefix(line, "{") { // captured headers of the request and of the response
		if _, line, ok = strings.Cut(line, "} "); !ok {
			return errHAProxy
		}
	}
	if request, ok := strings.CutPrefix(line, `"`); ok { // HAProxy cuts a long one off, with the quote
		request, _, _ = strings.Cut(request, `"`)
		r.request(request)
	}
	r.other = &f
	return nil
}

// A haproxyLine is the fields of a line.
type haproxyLine [haFields]string

// field implements others, with the names of HAProxy's documentation.
func (f *haproxyLine) field(name string) string {
	backend, server, _ := strings.Cut(f[haServer], "/")
	switch name {
	case "frontend_name":
		return f[haFrontend]
	case "backend_name":
		return backend
	case "server_name":
		return server
	case "termination_state":
		return f[haTermination]
	case "captured_request_cookie":
		return f[haRequestCookie]
	case "captured_response_cookie":
		return f[haResponseCookie]
	}
	for i, timer := range []string{"TR", "Tw", "Tc", "Tr", "Ta"} {
		if name == timer {
			if times := strings.Split(f[haTimes], "/"); i < len(times) {
				return times[i]
			}
		}
	}
	return ""
}
