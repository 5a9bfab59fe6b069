package redisstore

import (
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

// The modes of a script: the first byte of its argument.
const (
	modeDecide = 0
	modeCharge = 1 // decide, and charge refused calls too
	modeSettle = 2
	modeLater  = 3 // decide; the charge may be settled later
)

// The orders of take.lua: the last byte of its argument.
const (
	takeFitting = "\x01" // charge as many units as fit
	takeForced  = "\x02" // charge whether or not there is room
	takeBack    = "\x03" // give units back
)

// usualSize is enough bytes for a decision on one subject without calendar limits.
const usualSize = 64

// pack writes the argument of a decision: see the head of script/log.lua for its form.
func pack(reqs []driver.Request, countRefused bool, now int64) string {
	var usual [usualSize]byte // on the stack
	b := usual[:0]
	mode := byte(modeDecide)
	if countRefused {
		mode = modeCharge
	} else if slices.ContainsFunc(reqs, func(r driver.Request) bool { return r.MaySettle }) {
		mode = modeLater
	}
	b = append(b, mode)
	b = appendUint(b, 7, max(1, reqs[0].Policy.Resolution.Microseconds()))
	for i := range reqs {
		b = appendRequest(b, &reqs[i], now)
	}
	return string(b)
}

// bookable returns how far ahead requests may be booked that are decided together; zero if all only look, or cannot be.
func bookable(reqs []driver.Request) int64 {
	if !charges(reqs) || !reqs[0].Policy.Bookable() {
		return 0
	}
	within := reqs[0].Within
	for i := range reqs[1:] {
		within = min(within, reqs[i+1].Within)
	}
	return within
}

// packBooking writes what follows the argument of a decision that may be booked: how far ahead, and from which instant on.
func packBooking(within, from int64) string {
	var b [12]byte
	return string(appendUint(appendUint(b[:0], 5, within), 7, from))
}

// packSettlement writes the argument of a settlement: that of a decision, followed by when it was made, the instant of the
// charge, its units, the instant from which settling does nothing, and the settlement's name.
func packSettlement(set *driver.Settlement) string {
	at := set.At
	var usual [usualSize]byte
	b := append(usual[:0], modeSettle)
	b = appendUint(b, 7, max(1, set.Request.Policy.Resolution.Microseconds()))
	b = appendRequest(b, &set.Request, at)
	b = appendUint(b, 7, at-set.Delay)
	b = appendUint(b, 7, at)
	b = appendUint(b, 5, set.Units)
	b = appendUint(b, 7, set.Expires())
	var name window.Name
	if set.ID != "" {
		name = window.SettlementName(set.ID)
	}
	return string(append(b, name[:]...))
}

func appendRequest(b []byte, req *driver.Request, now int64) []byte {
	windows := req.Policy.Limits
	b = appendUint(b, 5, req.Cost)
	b = append(b, byte(len(windows)))
	for i := range windows {
		l := &windows[i]
		b = appendUint(b, 5, l.Units)
		b = appendUint(b, 7, l.Window)
		if l.Period == 0 {
			continue
		}
		b = appendUint(b, 7, l.Length())
		b = appendUint(b, 4, calendarID(l))
		b1, b2 := l.Bounds(now)
		b0, _ := l.Bounds(b1 - 1)
		_, b3 := l.Bounds(b2)
		for _, bound := range [...]int64{b0, b1, b2, b3} {
			b = appendUint(b, 7, max(1, bound)) // a clock near 1970: the instant before it counts from is not negative
		}
	}
	return b
}

// calendarID identifies the windows of a calendar limit.
func calendarID(l *driver.Limit) int64 {
	return int64(crc32.ChecksumIEEE([]byte(l.Period.String() + "@" + l.Zone.String())))
}

// calendarNow returns this process's time if any limit needs it.
func calendarNow(reqs []driver.Request) int64 {
	for i := range reqs {
		for _, l := range reqs[i].Policy.Limits {
			if l.Period != 0 {
				return time.Now().UnixMicro()
			}
		}
	}
	return 0
}

func appendUint(b []byte, size int, n int64) []byte {
	for shift := 8 * (size - 1); shift >= 0; shift -= 8 {
		b = append(b, byte(n>>shift))
	}
	return b
}

// slot returns the Redis Cluster slot of a key: CRC-16/XMODEM of its hash tag, or of all of it, modulo
// 16384 (Redis Cluster specification, "Key distribution model").
func slot(key string) uint16 {
	key = hashTag(key)
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc & 16383
}

// hashTag returns the part of a key that decides its slot: what is in its first braces, or all of it.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
