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
)

// Bounds of scripts. The port runs only scripts that call CL.THROTTLE, for programs whose client sends no commands of modules.
const (
	maxScript   = 1 << 10 // bytes
	mostScripts = 128     // that the port remembers
)

// An operand is an argument of the call in a script: KEYS[n] or ARGV[n], or else a text.
type operand struct {
	from string
	n    int
	text string
}

var (
	scriptCall    = regexp.MustCompile(`^\s*return\s+redis\s*\.\s*p?call\s*\(([^()]*)\)\s*;?\s*$`)
	scriptOperand = regexp.MustCompile(`^\s*(?:(KEYS|ARGV)\s*\[\s*(\d{1,3})\s*\]|'([^'\\\n]*)'|"([^"\\\n]*)"|(-?\d+))\s*(,|$)`)
)

func parseScript(script string) (all []operand, err error) {
	call := scriptCall.FindStringSubmatch(script)
	for more := call != nil && len(script) <= maxScript; more; {
		found := scriptOperand.FindStringSubmatch(call[1])
		if found == nil {
			all = nil
			break
		}
		n, _ := strconv.Atoi(found[2])
		all = append(all, operand{found[1], n, found[3] + found[4] + found[5]})
		call[1], more = call[1][len(found[0]):], found[6] == ","
	}
	if len(all) == 0 || all[0].from != "" || !strings.EqualFold(all[0].text, "CL.THROTTLE") {
		return nil, wrong("the only script here is return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], …), with KEYS[n], ARGV[n], texts or numbers behind the name")
	}
	return all[1:], nil
}

// scripts holds the scripts that clients have sent, by their SHA-1. When there are too many, it forgets all.
type scripts struct {
	mu    sync.Mutex
	known map[string][]operand
}

func (s *scripts) find(sum []byte) ([]operand, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call, ok := s.known[strings.ToLower(string(sum))]
	return call, ok
}

func (s *scripts) add(script []byte, call []operand) (sum string) {
	of := sha1.Sum(script)
	sum = hex.EncodeToString(of[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= mostScripts {
		s.known = make(map[string][]operand)
	}
	s.known[sum] = call
	return sum
}

func eval(c *conn, args [][]byte) (d decision, err error) {
	call, err := parseScript(string(args[0]))
	if err != nil {
		return d, err
	}
	if d, err = c.throttledBy(call, args[1:]); err == nil {
		c.handler.scripts.add(args[0], call)
	}
	return d, err
}

func evalSHA(c *conn, args [][]byte) (decision, error) {
	if call, ok := c.handler.scripts.find(args[0]); ok {
		return c.throttledBy(call, args[1:])
	}
	return decision{}, &refusal{"NOSCRIPT", "No matching script. Please use EVAL."}
}

// throttledBy reads CL.THROTTLE with the operands of a script. Its errors have the words of Redis.
func (c *conn) throttledBy(call []operand, args [][]byte) (decision, error) {
	keys, err := strconv.Atoi(string(args[0]))
	if err != nil || keys < 0 || keys > len(args)-1 {
		return decision{}, wrong("Number of keys can't be negative or greater than number of args")
	}
	from := map[string][][]byte{"KEYS": args[1 : 1+keys], "ARGV": args[1+keys:]}
	with := make([][]byte, len(call))
	for i, o := range call {
		switch {
		case o.from == "":
			with[i] = []byte(o.text)
		case o.n < 1 || o.n > len(from[o.from]):
			return decision{}, wrong("Lua redis lib command arguments must be strings or integers")
		default:
			with[i] = from[o.from][o.n-1]
		}
	}
	return throttled(c, with)
}

// script answers SCRIPT LOAD script and SCRIPT EXISTS sha1 [sha1 …].
func script(_ context.Context, c *conn, args [][]byte) error {
	switch word(args) {
	case "LOAD":
		call, err := parseScript(string(args[1]))
		if err == nil {
			_, err = c.permit(decide.OfRequest, access.Decide|access.Override)
		}
		if err == nil {
			c.out.text(c.handler.scripts.add(args[1], call))
		}
		return err
	case "EXISTS":
		c.out.list('*', int64(len(args)-1))
		for _, sum := range args[1:] {
			_, ok := c.handler.scripts.find(sum)
			c.out.flag(ok)
		}
		return nil
	}
	return wrong("unknown subcommand: there are SCRIPT LOAD and SCRIPT EXISTS")
}
