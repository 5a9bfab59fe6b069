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
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.config != cfg {
		u.config, u.seen = cfg, make(map[string]bool)
	}
	if u.seen[query] || len(u.seen) == maxQuestions {
		return
	}
	u.seen[query] = true
	logged := 0
	for _, rule := range cfg.Rules() {
		for _, d := range q.descriptors {
			i, write := d.misses(rule, q)
			if i < 0 || logged == maxUnmatched {
				continue
			}
			logged++
			if write == "" {
				write = "another value: no request has this one"
			}
			log.Warn("a rule limits nothing for a proxy: values of its requests are folded before they are compared, and none is as the rule's",
				"domain", q.domain, "rule", rule.Label, "value", wire.Clip(rule.Path[i].Value), "write", wire.Clip(write), "question", wire.Clip(query))
		}
	}
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

// foldPath folds the path of a rule. A path that is folded stays as it is.
func foldPath(by httplimit.PathFold, value string) (string, error) {
	if by == httplimit.CleanOnly { // which decodes once, and a value is decoded
		return path.Clean("/" + value), nil
	}
	return by.Fold(value)
}

// foldHost folds the host of a rule.
func foldHost(_ httplimit.PathFold, value string) (string, error) {
	if strings.Count(value, ":") == 1 { // and not an IPv6 address
		value, _, _ = strings.Cut(value, ":")
	}
	return lowerHost(value), nil
}

// continuation is a text that no fold changes, wherever it is appended, and that completes no encoding.
const continuation = "xyzzy"

// written returns the value of a rule as requests have it: the same one if some request can match it, and "" if there is
// none. Of a value that ends in *, the part before it is the beginning of a request's.
func (s source) written(by httplimit.PathFold, value string) string {
	prefix, wildcard := strings.CutSuffix(value, "*")
	if !wildcard {
		folded, _ := s.fold(by, value)
		return folded
	}
	if prefix == "" {
		return value
	}
	folded, err := s.fold(by, prefix+continuation)
	if err != nil {
		return ""
	}
	begin, kept := strings.CutSuffix(folded, continuation)
	if !kept {
		begin, _ = s.fold(by, prefix)
	}
	return begin + "*"
}
