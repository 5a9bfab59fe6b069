package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"example.com/sash"
	"example.com/sash/driver"
)

// Instances records on Redis that an instance of a group is alive, and returns how many are, including this one: the
// number that shares each limit while Redis cannot be reached. Each instance calls it with an ID of its own, such as
// a host name and a process ID, a few times in each ttl. An instance that does not call for a ttl is no longer counted.
// The ttl is at least a millisecond, and is truncated to whole milliseconds.
//
// The count is too low after Redis has lost its state, or its clock has jumped forward, until every instance has called
// again: a caller that must not admit too much keeps the highest count of the last ttl. It is too high for a while after
// the clock went back. Errors are [sash.ErrInvalidKey] for a group or
// ID that is empty or longer than driver.MaxKeyLength, [sash.ErrInvalidLimit] for a ttl, and those of the client.
func (s *Store) Instances(ctx context.Context, group, id string, ttl time.Duration) (int, error) {
	for _, name := range [...]string{group, id} {
		if name == "" || len(name) > driver.MaxKeyLength {
			return 0, fmt.Errorf("%w: a group or an instance is called by 1 to %d bytes, not %d", sash.ErrInvalidKey, driver.MaxKeyLength, len(name))
		}
	}
	if ttl < time.Millisecond {
		return 0, fmt.Errorf("%w: an instance counts for at least a millisecond, not %v", sash.ErrInvalidLimit, ttl)
	}
	arg := string(appendUint(nil, 7, ttl.Milliseconds())) + id
	reply, err := s.send(ctx, instances, []string{s.prefix + "instances:" + group}, arg)
	if err != nil {
		return 0, err
	}
	return unpackCount(reply)
}

func unpackCount(reply string) (int, error) {
	n, err := strconv.Atoi(reply)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("redisstore: %.40q is not a number of instances", reply)
	}
	return n, nil
}
