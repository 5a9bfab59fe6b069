package driver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"example.com/sash/driver"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func TestDaysOfTheCalendar(t *testing.T) {
	for name, c := range map[string]struct {
		zone  string
		at    string // UTC
		start string // UTC
		hours float64
	}{
		"an ordinary day":                     {"America/Los_Angeles", "2026-11-20T20:00:00Z", "2026-11-20T08:00:00Z", 24},
		"clocks go forward":                   {"America/Los_Angeles", "2026-03-08T12:00:00Z", "2026-03-08T08:00:00Z", 23},
		"clocks go back":                      {"America/Los_Angeles", "2026-11-01T12:00:00Z", "2026-11-01T07:00:00Z", 25},
		"the first instant":                   {"America/Los_Angeles", "2026-11-01T07:00:00Z", "2026-11-01T07:00:00Z", 25},
		"the last instant":                    {"America/Los_Angeles", "2026-11-02T07:59:59.999999Z", "2026-11-01T07:00:00Z", 25},
		"half-hour offset":                    {"Asia/Kolkata", "2026-06-01T00:00:00Z", "2026-05-31T18:30:00Z", 24},
		"midnight is skipped":                 {"America/Sao_Paulo", "2018-11-04T15:00:00Z", "2018-11-04T03:00:00Z", 23},
		"the day before midnight is skipped":  {"America/Sao_Paulo", "2018-11-03T15:00:00Z", "2018-11-03T03:00:00Z", 24},
		"midnight comes twice":                {"America/Havana", "2026-11-01T15:00:00Z", "2026-11-01T04:00:00Z", 25},
		"in the second midnight hour":         {"America/Havana", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", 25},
		"clocks go back over midnight":        {"America/St_Johns", "2009-11-01T02:32:00Z", "2009-11-01T02:30:00Z", 25},
		"an hour comes twice before midnight": {"America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", 25},
	} {
		t.Run(name, func(t *testing.T) {
			at, _ := time.Parse(time.RFC3339Nano, c.at)
			want, _ := time.Parse(time.RFC3339Nano, c.start)
			limit := driver.Limit{Period: driver.Day, Zone: zone(t, c.zone)}
			start, end := limit.Bounds(at.UnixMicro())
			if start != want.UnixMicro() {
				t.Errorf("the day starts at %v, not %v", time.UnixMicro(start).UTC(), want)
			}
			if hours := float64(end-start) / float64(time.Hour.Microseconds()); hours != c.hours {
				t.Errorf("the day has %v hours, not %v", hours, c.hours)
			}
		})
	}
}

// Every instant is in exactly one period, whose local date (and hour) is that instant's: checked by
// stepping through a year, in zones with every kind of change.
func TestPeriodsTileTheYear(t *testing.T) {
	label := map[driver.Period]string{driver.Hour: "2006-01-02 15 -0700", driver.Day: "2006-01-02", driver.Month: "2006-01"}
	for _, name := range []string{"UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu",
		"Australia/Lord_Howe", "America/Havana", "Asia/Beirut", "America/Asuncion", "Africa/Cairo", "Antarctica/Troll"} {
		loc := zone(t, name)
		for period, form := range label {
			limit := driver.Limit{Period: period, Zone: loc}
			from := time.Date(2023, 12, 30, 0, 0, 0, 0, time.UTC).UnixMicro()
			to := time.Date(2025, 1, 3, 0, 0, 0, 0, time.UTC).UnixMicro()
			start, end := limit.Bounds(from)
			for at := from; at < to; at += (10 * time.Minute).Microseconds() {
				if at >= end {
					next, last := limit.Bounds(end)
					if next != end {
						t.Fatalf("%s: a period ends at %v and the next starts at %v", name, time.UnixMicro(end).UTC(), time.UnixMicro(next).UTC())
					}
					if a, b := time.UnixMicro(end-1).In(loc).Format(form), time.UnixMicro(end).In(loc).Format(form); a == b {
						t.Fatalf("%s: there is a boundary inside %s", name, a)
					}
					start, end = next, last
				}
				if a, b := time.UnixMicro(start).In(loc).Format(form), time.UnixMicro(at).In(loc).Format(form); a != b {
					t.Fatalf("%s: %v is %s and is counted in %s", name, time.UnixMicro(at).UTC(), b, a)
				}
				if end-start > limit.Length() {
					t.Fatalf("%s: a period of %v is longer than Length", name, time.Duration(end-start)*time.Microsecond)
				}
			}
		}
	}
}

func TestAnAnswerCombinesItsLimits(t *testing.T) {
	for name, c := range map[string]struct {
		refusals         uint64
		allowed          bool
		remaining, retry int64
	}{
		"admitted":           {0, true, 2, 0},
		"refused by one":     {0b010, false, 2, 70},
		"refused by several": {0b110, false, 2, 70},
	} {
		var answer driver.Answer
		answer.Set(1, c.refusals, []driver.Status{{Remaining: 9}, {Remaining: 2, Retry: 70}, {Remaining: 4, Retry: 30}})
		if answer.Allowed() != c.allowed || answer.Remaining() != c.remaining || answer.Retry() != c.retry {
			t.Errorf("%s: allowed %v, %d left, retry after %d", name, answer.Allowed(), answer.Remaining(), answer.Retry())
		}
	}
}

// A store that is written in another module, with public packages only, passes the suite.
func TestAStoreFromOutsidePassesTheSuite(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "outside"))); err != nil {
		t.Fatal(err)
	}
	mod := "module elsewhere.test/outside\n\ngo 1.26.0\n\nrequire example.com/sash v0.0.0\n\nreplace example.com/sash => " + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
