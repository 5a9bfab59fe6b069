package logs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A written configuration has the proposal in shadow mode, in one rule.
type written struct {
	Policy string `json:"policy"` // the file
	Replay string `json:"replay"` // the command that gives the same outcome
}

// write writes the configuration, unless there is no file for it.
func (s *suggestFlags) write(r *suggestReport) error {
	if s.policyFile == "" {
		return nil
	}
	r.Written = &written{s.policyFile, s.replayCommand()}
	var limits []string
	for _, l := range r.Limits {
		limits = append(limits, strconv.Quote(l))
	}
	text := s.head(r) + fmt.Sprintf("domain: web\ndescriptors:\n  - key: %s\n    limits: [%s]\n    shadow_mode: true\n", s.entry(), strings.Join(limits, ", "))
	file, err := os.OpenFile(s.policyFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a configuration has no secrets
	if errors.Is(err, fs.ErrExist) {
		return fileExists(s.policyFile)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return cmp.Or(err, file.Close())
}

// fileExists is the error for a file that is there, which may have been edited since it was proposed.
func fileExists(name string) error {
	return fmt.Errorf("--write-policy %s: the file exists; remove it, or choose another name", name)
}

var plainKey = regexp.MustCompile(`^[a-z_]+$`)

// entry returns the key of the entry for the subject: the field of --key, or "client" for another expression.
func (s *suggestFlags) entry() string {
	if plainKey.MatchString(s.expressions.Key) {
		return s.expressions.Key
	}
	return "client"
}

// replayCommand returns the command that replays the file, with the flags that decide how the log is read and what counts.
func (s *suggestFlags) replayCommand() string {
	words := []string{"sash-logs replay --policy", shellText(s.policyFile), "--entry", shellText(s.entry() + "=" + s.expressions.Key)}
	add := func(flag, value, usual string) {
		if value != usual {
			words = append(words, flag, shellText(value))
		}
	}
	add("--format", s.format, "auto")
	add("--log-format", s.logFormat, "")
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		add("--field", name+"="+s.fields[name], "")
	}
	add("--trusted-proxies", strings.Join(s.trusted, ","), "")
	for _, pattern := range s.expressions.Routes {
		add("--route", pattern, "")
	}
	add("--where", s.expressions.Where, "")
	add("--cost", cmp.Or(s.expressions.Cost, "1"), "1")
	return strings.Join(append(words, "FILE"), " ")
}

// head is the comment at the head of the file.
func (s *suggestFlags) head(r *suggestReport) string {
	key, counted := s.entry(), ""
	if key != s.expressions.Key {
		key += ", which is " + printable(s.expressions.Key)
	}
	if s.expressions.Where != "" {
		counted = "# Only requests with " + printable(s.expressions.Where) + " were counted: send no others, or they are charged too.\n"
	}
	if cost := s.expressions.Cost; cost != "" && cost != "1" {
		counted += "# A request costs " + printable(cost) + " units: send them with it.\n"
	}
	return fmt.Sprintf(`# Proposed by sash-logs suggest for %d requests of %s, from %s to %s.
# A request has the entry %s.
# shadow_mode: nothing is refused, and what would have been is counted. Remove it to enforce the rule.
`, r.Requests, r.clients(int64(r.Clients)), r.First, r.Last, key) + counted
}

func writtenText(t *text, w *written) {
	t.say("\n%s has these limits in shadow mode: nothing is refused, and what would have been is counted.", w.Policy)
	t.say("  sash config check %s\n  %s\n  sash serve --config %s", shellText(w.Policy), w.Replay, shellText(w.Policy))
}
