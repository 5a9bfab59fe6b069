package redisstore_test

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
)

// Every name of a threshold is in a script, and every name in a script has a value.
func TestThresholdsAreWhatTheScriptsName(t *testing.T) {
	with := maps.Clone(threshold.Scripts)
	other := int64(987_000)
	for name := range with {
		other++
		with[name] = other
	}
	var texts strings.Builder
	for _, s := range redisstore.Scripts() {
		texts.WriteString(s.With(with).Text)
		if again := s.With(threshold.Scripts); *again != *s {
			t.Errorf("%s with its own thresholds is another script", s.Name)
		}
	}
	for name := range with {
		if !strings.Contains(texts.String(), with.Put(name)) {
			t.Errorf("no script has %s", name)
		}
	}
	if name := regexp.MustCompile(`\b[A-Z]+_[A-Z_]+\b`).FindString(texts.String()); name != "" {
		t.Errorf("%s has no value", name)
	}
}
