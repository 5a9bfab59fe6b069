package httpapi

import (
	"log/slog"
	"path"
	"strings"
	"sync"

	"example.com/sash/httplimit"
	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/wire"
)

// Bounds of the warnings under one configuration.
const (
	maxQuestions = 64 // whose rules are examined
	maxUnmatched = 10 // rules of a question that are logged
)

// unmatched warns of rules that match no request of a proxy, because the value in the configuration is not as values of
// requests are after folding, such as /Login with path=all: a limit that limits nothing. The zero value is ready.
type unmatched struct {
	mu     sync.Mutex
	config *config.Config  // guarded by mu
	seen   map[string]bool // guarded by mu: the questions that were asked under config
}

// warn logs the rules of a question, once for each configuration.
func (u *unmatched) warn(cfg *config.Config, q *question, query string, log *slog.Logger) {
	if !u.first(cfg, query) {
		return
	}
	logged := 0
	for _, rule := range cfg.Rules() {
		for _, d := range q.descriptors {
			i, write := d.misses(rule, q)
			if i < 0 || logged == maxUnmatched {
				continue
			}
			logged++
			value := rule.Path[i].Value
			args := []any{"domain", q.domain, "rule", rule.Label, "value", wire.Clip(value), "write", wire.Clip(write)}
			if write == "" {
				args[len(args)-1] = "another value: no request has this one"
			}
			if q.path == httplimit.FoldAll && d[i].written(httplimit.KeepCase, value) == value {
				args = append(args, "or_ask_with", "path="+httplimit.KeepCase.String())
			}
			log.Warn("a rule limits nothing for a proxy: values of its requests are folded before they are compared, and none is as the rule's",
				append(args, "question", wire.Clip(query))...)
		}
	}
}

// first reports whether a question is the first of its kind under a configuration. After maxQuestions none is.
func (u *unmatched) first(cfg *config.Config, query string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.config != cfg {
		u.config, u.seen = cfg, make(map[string]bool)
	}
	if u.seen[query] || len(u.seen) == maxQuestions {
		return false
	}
	u.seen[query] = true
	return true
}

// misses returns the level at which a rule has a value that no request of the question has, and how to write it; -1 if
// there is none, or the question has other keys than the rule.
func (d descriptor) misses(rule *config.Rule, q *question) (level int, write string) {
	if rule.Domain != q.domain || len(rule.Path) != len(d) {
		return -1, ""
	}
	level = -1
	for i, s := range d {
		e := rule.Path[i]
		if e.Key != s.key {
			return -1, ""
		}
		if s.fold == nil || e.Value == "" || level >= 0 {
			continue
		}
		if w := s.written(q.path, e.Value); w != e.Value {
			level, write = i, w
		}
	}
	return level, write
}

// A folding returns the form that a value has after folding. A form that is folded stays as it is.
type folding func(by httplimit.PathFold, value string) (string, error)

// foldings are those of proxiedValues whose values have one form.
var foldings = map[string]folding{
	"path": func(by httplimit.PathFold, value string) (string, error) {
		if by == httplimit.CleanOnly { // which decodes once, and a value is decoded
			return path.Clean("/" + value), nil
		}
		return by.Fold(value)
	},
	"host": func(_ httplimit.PathFold, value string) (string, error) {
		if strings.Count(value, ":") == 1 { // and not an IPv6 address
			value, _, _ = strings.Cut(value, ":")
		}
		return strings.ToLower(strings.TrimSuffix(value, ".")), nil
	},
}

// continuation is a text that no fold changes, wherever it is appended, and that completes no encoding.
const continuation = "xyzzy"

// written returns the value of a rule as requests have it: the same one if some request can match it, and "" if there is
// none. Of a value that ends in *, the part before it is the beginning of a request's.
func (s source) written(by httplimit.PathFold, value string) string {
	prefix, wildcard := strings.CutSuffix(value, "*")
	if !wildcard {
		folded, err := s.fold(by, value)
		if err != nil {
			return ""
		}
		return folded
	}
	if prefix == "" {
		return value
	}
	folded, err := s.fold(by, prefix+continuation)
	if err != nil {
		return ""
	}
	if begin, kept := strings.CutSuffix(folded, continuation); kept {
		return begin + "*"
	}
	folded, _ = s.fold(by, prefix)
	return folded + "*"
}
