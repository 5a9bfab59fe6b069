package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"example.com/sash/service/internal/verify"
)

// What is printed says no more than what was checked.
func TestWhatVerifySays(t *testing.T) {
	v := &verifying{opts: verify.Options{Seed: 42, Workers: 3}}
	for _, c := range []struct {
		name      string
		report    verify.Report
		ended     error
		say, not  []string
		inVerdict string
	}{
		{"every call was answered", verify.Report{Rounds: 1, Tally: verify.Tally{Admitted: 7, Refused: 5}}, nil, []string{"kept: ", "every retry time was exact"}, []string{"is unknown"}, "kept"},
		{"some calls had no answer", verify.Report{Rounds: 1, Doubtful: 3, Tally: verify.Tally{Admitted: 7, Refused: 5, Unanswered: 2}}, nil, []string{"kept: ", "2 of 5 refusals were right", "the other 3", "is unknown", "2 without an answer"}, []string{"every retry time"}, "kept"},
		{"a round could not begin", verify.Report{Rounds: 1, Tally: verify.Tally{Admitted: 7, Refused: 5}}, errors.New("gone"), []string{"kept so far: "}, nil, "kept so far"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			verifyText(&text{to: &out}, v, &c.report, c.ended)
			for _, say := range append(c.say, "seed 42", "7 admitted") {
				if !strings.Contains(out.String(), say) {
					t.Errorf("%q is not in\n%s", say, out.String())
				}
			}
			for _, not := range c.not {
				if strings.Contains(out.String(), not) {
					t.Errorf("%q is in\n%s", not, out.String())
				}
			}
			answer, err := json.Marshal(verifyAnswer(v, &c.report, c.ended))
			if err != nil || !strings.Contains(string(answer), `"verdict":"`+c.inVerdict+`"`) || strings.Contains(string(answer), `"error"`) != (c.ended != nil) {
				t.Errorf("%s, %v", answer, err)
			}
		})
	}
}
