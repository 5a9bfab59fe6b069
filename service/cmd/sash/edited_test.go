//go:build envoy || kubernetes

package main

import (
	"strings"
	"testing"
)

// edited returns the text with each of from, to, … replaced. Each is there.
func edited(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the example", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}
