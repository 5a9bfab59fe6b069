package accesslog

import (
	"errors"
	"strings"
)

// Positions of the fields that are read from a line of an AWS application load balancer.
const (
	albTime    = 1
	albClient  = 3
	albWaited  = 6 // the target's response time
	albStatus  = 8
	albSent    = 11
	albRequest = 12
	albAgent   = 13
	albLeast   = 14
)

// parseALB parses a line of an AWS application load balancer.
func parseALB(line string, r *Record) error {
	var fields [albLeast]string
	for i := range fields {
		line = strings.TrimPrefix(line, " ")
		var ok bool
		if fields[i], line, ok = quoted(line); !ok {
			fields[i], line, ok = strings.Cut(line, " ")
			if !ok && i < albLeast-1 {
				return errors.New("it has fewer fields than a load balancer's line")
			}
		}
	}
	var err error
	if r.Time, err = parseTime(fields[albTime]); err != nil {
		return err
	}
	if err = r.setStatus(fields[albStatus]); err != nil {
		return err
	}
	if err = r.setBytes(fields[albSent]); err != nil {
		return err
	}
	r.RemoteAddress = withoutPort(fields[albClient])
	r.setDuration(fields[albWaited])
	r.request(fields[albRequest])
	r.UserAgent = dash(fields[albAgent])
	return nil
}
