package output

import (
	"strings"
	"testing"
)

func TestWhatCommandsPrint(t *testing.T) {
	var text, answer strings.Builder
	describe := func(t *Text) {
		t.Say("%s of %s", Count(1, "unit"), Count(2, "unit"))
		t.Rows(0, [][]string{{"a", "b"}, {"long", "c"}})
		t.Say("%s", Printable("\x1b[2J"+strings.Repeat("é", 100)))
	}
	if err := Print(&text, false, nil, describe); err != nil || text.String() != "1 unit of 2 units\na     b\nlong  c\n?[2J"+strings.Repeat("é", 66)+"…\n" {
		t.Errorf("%q, %v", text.String(), err)
	}
	if err := Print(&answer, true, map[string]string{"a": "<b>"}, describe); err != nil || answer.String() != `{"a":"<b>"}`+"\n" {
		t.Errorf("%q, %v", answer.String(), err)
	}
	if v := Version(); !strings.HasPrefix(v, "devel, commit ") || !strings.Contains(v, ", go1") {
		t.Errorf("version %s", v)
	}
}
