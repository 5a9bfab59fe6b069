package resp

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"example.com/sash/service/internal/access"
	"example.com/sash/service/internal/decide"
	"example.com/sash/service/internal/wire"
)

// Scripts that only call CL.THROTTLE are understood: programs call it so where their client sends no commands of modules.

// Bounds of scripts.
const (
	maxScript   = 1 << 10 // bytes
	mostScripts = 128     // that the port remembers
)

// An operand is an argument of the call in a script: KEYS[of] or ARGV[of], or else its text.
type operand struct {
	from, text string
	of         int
}

var (
	scriptCall    = regexp.MustCompile(`^\s*return\s+redis\s*\.\s*p?call\s*\(([^()]*)\)\s*;?\s*$`)
	scriptOperand = regexp.MustCompile(`^\s*(?:(KEYS|ARGV)\s*\[\s*(\d{1,3})\s*\]|'([^'\\\n]*)'|"([^"\\\n]*)"|(-?\d+))\s*(,|$)`)
)

// parseScript returns the operands behind the name of the command.
func parseScript(script string) ([]operand, error) {
	mistake := wrong("the only script here is return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], …), with KEYS[n], ARGV[n], texts or numbers behind the name")
	call := scriptCall.FindStringSubmatch(script)
	if call == nil || len(script) > maxScript {
		return nil, mistake
	}
	var all []operand
	for rest, more := call[1], true; more; {
		found := scriptOperand.FindStringSubmatch(rest)
		if found == nil {
			return nil, mistake
		}
		of, _ := strconv.Atoi(found[2])
		all = append(all, operand{found[1], found[3] + found[4] + found[5], of})
		rest, more = rest[len(found[0]):], found[6] == ","
	}
	if all[0].from != "" || !strings.EqualFold(all[0].text, "CL.THROTTLE") {
		return nil, mistake
	}
	return all[1:], nil
}

// scripts are those that clients have sent, by the SHA-1 that names them. When they are too many, one of them is forgotten.
type scripts struct {
	mu    sync.Mutex
	known map[string][]operand
}

func (s *scripts) find(sum string) ([]operand, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call, ok := s.known[strings.ToLower(sum)]
	return call, ok
}

func (s *scripts) add(script []byte, call []operand) (sum string) {
	of := sha1.Sum(script)
	sum = hex.EncodeToString(of[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = make(map[string][]operand)
	}
	s.known[sum] = call
	for other := range s.known {
		if len(s.known) <= mostScripts {
			break
		}
		if other != sum {
			delete(s.known, other)
		}
	}
	return sum
}

// eval reads EVAL script numkeys [key …] [argument …].
func eval(c *conn, args [][]byte) (decision, error) {
	call, err := parseScript(string(args[0]))
	if err != nil {
		return decision{}, err
	}
	d, err := c.throttledBy(call, args[1:])
	if err == nil {
		c.handler.scripts.add(args[0], call)
	}
	return d, err
}

func evalSHA(c *conn, args [][]byte) (decision, error) {
	call, ok := c.handler.scripts.find(string(args[0]))
	if !ok {
		return decision{}, &refusal{"NOSCRIPT", "No matching script. Please use EVAL."}
	}
	return c.throttledBy(call, args[1:])
}

// throttledBy reads CL.THROTTLE with the operands of a script, whose errors have the words of Redis.
func (c *conn) throttledBy(call []operand, args [][]byte) (decision, error) {
	n, err := strconv.Atoi(string(args[0]))
	args = args[1:]
	switch {
	case err != nil:
		return decision{}, wrong("value is not an integer or out of range")
	case n < 0:
		return decision{}, wrong("Number of keys can't be negative")
	case n > len(args):
		return decision{}, wrong("Number of keys can't be greater than number of args")
	}
	with := make([][]byte, len(call))
	for i, o := range call {
		from := args[:n]
		if o.from == "ARGV" {
			from = args[n:]
		}
		switch {
		case o.from == "":
			with[i] = []byte(o.text)
		case o.of < 1 || o.of > len(from):
			return decision{}, wrong("Lua redis lib command arguments must be strings or integers")
		default:
			with[i] = from[o.of-1]
		}
	}
	return throttled(c, with)
}

// script answers SCRIPT LOAD script and SCRIPT EXISTS sha1 [sha1 …].
func script(_ context.Context, c *conn, args [][]byte) error {
	switch sub := word(args); {
	case sub == "LOAD" && len(args) == 2:
		call, err := parseScript(string(args[1]))
		if err == nil {
			_, err = c.permit(decide.OfRequest, access.Decide|access.Override)
		}
		if err != nil {
			return err
		}
		c.out.text(c.handler.scripts.add(args[1], call))
	case sub == "EXISTS" && len(args) > 1:
		c.out.list('*', int64(len(args)-1))
		for _, sum := range args[1:] {
			_, ok := c.handler.scripts.find(string(sum))
			c.out.flag(ok)
		}
	default:
		return wrong("unknown subcommand or wrong number of arguments for '" + wire.Clip(sub) + "'")
	}
	return nil
}
