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
			value := d.misses(rule, q)
			if value == "" || logged == maxUnmatched {
				continue
			}
			logged++
			log.Warn("a rule limits nothing for a proxy: its value is not written as values of requests are after folding",
				"domain", q.domain, "rule", rule.Label, "value", wire.Clip(value), "question", wire.Clip(query))
		}
	}
}

// misses returns the first value of a rule that no request of the question has; "" if there is none, or the question has
// other keys than the rule.
func (d descriptor) misses(rule *config.Rule, q *question) (value string) {
	if rule.Domain != q.domain || len(rule.Path) != len(d) {
		return ""
	}
	for i, s := range d {
		e := rule.Path[i]
		if e.Key != s.key {
			return ""
		}
		if value == "" && !s.reaches(q.path, e.Value) {
			value = e.Value
		}
	}
	return value
}

// reaches reports whether some request can have the value of a rule. Of a value that ends in *, the part before it is the
// beginning of a request's: it is tried with a text that no fold changes and that completes no encoding.
func (s source) reaches(by httplimit.PathFold, value string) bool {
	begin, wildcard := strings.CutSuffix(value, "*")
	if wildcard {
		value = begin + "xyzzy"
	}
	if begin == "" {
		return true
	}
	folded, err := value, error(nil)
	switch {
	case s.from == "path" && by == httplimit.CleanOnly: // which decodes once, and a value is decoded
		folded = path.Clean("/" + value)
	case s.from == "path":
		folded, err = by.Fold(value)
	case s.from == "host":
		if strings.Count(value, ":") == 1 { // and not an IPv6 address
			folded, _, _ = strings.Cut(value, ":")
		}
		folded = lowerHost(folded)
	}
	return err == nil && folded == value
}
