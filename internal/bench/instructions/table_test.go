package instructions_test

import (
	"slices"
	"strings"
	"testing"

	"example.com/sash/internal/bench/instructions"
)

func TestReadFindsTheRowsOfATable(t *testing.T) {
	table := instructions.NewTable("more")
	table.Row("one", "120", "0.5")
	table.Row("two", "90", "-")
	got, err := instructions.Read([]byte("# Page\n\n| a | b |\n|:--- | ---:|\n| x | 1 |\n\n" + table.String() + "\n\nText.\n"))
	if err != nil || !slices.Equal(got, []instructions.Row{{"one", 120}, {"two", 90}}) {
		t.Errorf("read %v, %v", got, err)
	}
	table.Row("three", "many", "-")
	if _, err := instructions.Read([]byte(table.String())); err == nil || !strings.Contains(err.Error(), "three") {
		t.Errorf("a count that is no number: %v", err)
	}
	if _, err := instructions.Read([]byte("# Page\n")); err == nil {
		t.Error("a page without counts is no error")
	}
}

func TestDifferencesNameWhatChanged(t *testing.T) {
	before := []instructions.Row{{"as before", 1000}, {"dearer", 1000}, {"left", 5}}
	now := []instructions.Row{{"as before", 1009}, {"dearer", 1100}, {"came", 7}}
	want := []string{"dearer: 1100 instructions, were 1000 (+10.0 %)", "came: 7 instructions, new", "left: gone"}
	if got := instructions.Differences(before, now); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
