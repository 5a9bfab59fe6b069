package cli

import (
	"encoding/json"
	"fmt"
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

// A history of calls is judged by a limit: three units were admitted at once, and the fourth was refused.
func TestVerifyJudgesAHistory(t *testing.T) {
	var calls strings.Builder
	for i, admitted := range []bool{true, true, true, false} {
		fmt.Fprintf(&calls, `{"key": "user_7", "sent": %d, "received": %[1]d, "admitted": %v}`+"\n", i, admitted)
	}
	for args, want := range map[string]struct {
		code int
		say  string
	}{
		"--limit 2/1h": {exitRefused, "violated: 1 of 1 key\n  over the limit: \"user_7\" was admitted 3 units in the 1h0m0s that end at 1970-01-01T00:00:02.000000Z, " +
			"and the limit is 2/1h; 1 admission went over\n  limits 2/1h\n"},
		"--limit 2/1h --json": {exitRefused, `"over_admitted":1`},
		"--limit 3/1h":        {exitAllowed, "kept: no window held more than its limit, no call was refused that certainly had room\n"},
		"--limit 9/1h":        {exitRefused, "refused with room: 1 times; the first, of 1 unit of \"user_7\" at 1970-"},
	} {
		var out strings.Builder
		line := append([]string{"verify", "--history", "-"}, strings.Fields(args)...)
		code := Run(t.Context(), line, strings.NewReader(calls.String()), &out, &out, func(string) string { return "" })
		if code != want.code || !strings.Contains(out.String(), want.say) {
			t.Errorf("%s: exit %d, %s; want %d, %q", args, code, out.String(), want.code, want.say)
		}
	}
}
