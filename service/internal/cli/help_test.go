package cli

import (
	"strings"
	"testing"
)

// The help of sash serve is read as a whole.
func TestHelpOfServe(t *testing.T) {
	var out strings.Builder
	if code := Run(t.Context(), []string{"serve", "--help"}, nil, &out, &out, func(string) string { return "" }); code != 0 {
		t.Fatal(code, out.String())
	}
	if n := len(strings.Fields(out.String())); n > 900 {
		t.Errorf("it has %d words", n)
	}
	if n := strings.Count(out.String(), "\n      --"); n > 30 {
		t.Errorf("it has %d flags", n)
	}
}
