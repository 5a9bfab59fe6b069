package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"example.com/sash/service/internal/verify"
)

// What is printed says no more than what was checked.
func TestWhatVerifySays(t *testing.T) {
	for name, c := range map[string]struct {
		doubtful, unanswered int
		say, not             string
	}{
		"every call was answered":  {0, 0, "every retry time was exact\n", "came after a call without an answer"},
		"some calls had no answer": {3, 2, "2 of 5 refusals were right, with exact retry times;\n  the other 3 came after a call without an answer", "every retry time"},
	} {
		v := verdict{Seed: 42, Workers: 3, Report: verify.Report{Admitted: 7, Refused: 5, Doubtful: c.doubtful, Unanswered: c.unanswered}}
		var out, answer strings.Builder
		if a := (&app{out: &out}); a.judged(false, &v) != nil || !strings.HasPrefix(out.String(), "kept: ") || !strings.Contains(out.String(), c.say) ||
			strings.Contains(out.String(), c.not) || !strings.Contains(out.String(), "seed 42") || !strings.Contains(out.String(), "7 admitted") {
			t.Errorf("%s: %s", name, out.String())
		}
		if err := json.NewEncoder(&answer).Encode(&v); err != nil || !strings.HasPrefix(answer.String(), `{"verdict":"kept"`) {
			t.Errorf("%s: %s, %v", name, answer.String(), err)
		}
	}
}
