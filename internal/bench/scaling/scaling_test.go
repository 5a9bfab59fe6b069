package scaling

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const docs = "../../../docs"

var update = flag.Bool("update", false, "write the tables of docs/scaling.md, without measuring anything")

func doc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// differences lists the lines of two texts that differ.
func differences(have, want string) (all []string) {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(h), len(w)) {
		line := func(of []string) string {
			if i < len(of) {
				return of[i]
			}
			return ""
		}
		if line(h) != line(w) {
			all = append(all, fmt.Sprintf("docs/%s:%d has\n%s\nand by docs/%s it is\n%s", to, i+1, line(h), Figures, line(w)))
		}
	}
	return all
}

// What scaling.md computes follows from the figures of benchmarks-scale.md.
func TestTheArithmeticFollowsFromTheFigures(t *testing.T) {
	if *update {
		if err := Write(docs); err != nil {
			t.Fatal(err)
		}
	}
	have := doc(t, to)
	want, err := fill(have, doc(t, Figures))
	if err != nil {
		t.Fatal(err)
	}
	for _, difference := range differences(have, want) {
		t.Error(difference)
	}
	if t.Failed() {
		t.Log("`go test ./scaling -update` in internal/bench writes the tables")
	}
}

// What the prose of scaling.md says of the slopes is true of the figures. A claim that a new run contradicts is rewritten.
func TestTheProseFollowsFromTheFigures(t *testing.T) {
	words := strings.Join(strings.Fields(doc(t, to)), " ")
	p := read(doc(t, Figures))
	rises := func(a amount) bool { return a.low > 0 }
	falls := func(a amount) bool { return a.high < 0 }
	within := func(percent float64) func(a amount) bool {
		return func(a amount) bool { return -percent < a.value && a.value < percent }
	}
	for _, claim := range []struct {
		says  string
		holds func(amount) bool
		of    [][2]string // tables of slopes, and their rows
	}{
		{"Subjects cost memory and hardly any time.", within(5), [][2]string{{"subjects", redisColumn}}},
		{"Each further key and each further limit of a decision is more work.", rises, [][2]string{{"keys", redisColumn}, {"limits", redisColumn}}},
		{"More calls make each of them cheaper.", falls,
			[][2]string{{"calls a second", busiestStore + ": Redis"}, {"calls a second on one instance", "all instances"}}},
		{"More primaries with the same load each take about the same time for a decision.", within(10),
			[][2]string{{"primaries" + sameForEach, clusterStore + ": Redis"}}},
		{"The same load over more primaries takes more, since each has fewer calls at once.", rises, [][2]string{{"primaries" + sameInAll, clusterStore + ": Redis"}}},
		{"The same load over more instances takes more time as well, in the instances and in Redis.", rises,
			[][2]string{{"instances" + sameInAll, "all instances"}, {"instances" + sameInAll, "Redis"}}},
	} {
		if !strings.Contains(words, claim.says) {
			t.Errorf("docs/%s does not say %q: change it here, too", to, claim.says)
		}
		for _, of := range claim.of {
			slope, err := p.slope("doubling the "+of[0], "%", "± %", of[1])
			if err != nil {
				t.Error(err)
			} else if !claim.holds(slope) {
				t.Errorf("docs/%s says %q, and by docs/%s doubling the %s changes %q by %s", to, claim.says, Figures, of[0], of[1], slope.percent())
			}
		}
	}
}

// The prose names the sizes that the arithmetic starts from and what it assumes.
func TestTheProseHasTheAssumptions(t *testing.T) {
	for page, phrases := range map[string][]string{
		Figures: {fmt.Sprintf("on %d subjects from", busySubjects)},
		to: {fmt.Sprintf("one Redis with %s subjects", thousands(busySubjects)), fmt.Sprintf("%v %% busy is as far", 100*busy),
			fmt.Sprintf("%d further calls in its window", calls), fmt.Sprintf("%v kB between", kilobyte)},
	} {
		words := strings.Join(strings.Fields(doc(t, page)), " ")
		for _, phrase := range phrases {
			if !strings.Contains(words, phrase) {
				t.Errorf("docs/%s does not say %q", page, phrase)
			}
		}
	}
}

// figures has the cells that the arithmetic takes, and no others.
const figures = `
| store, calls a second | Redis µs a decision | decisions/s |
|:--- | ---:| ---:|
| Sash coalesce, rueidis, one connection, 32000 | 10.0 (9.00-12.0) | 31790 (29990-32010) |

| doubling the calls a second | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| Sash coalesce, rueidis, one connection: Redis | -20.0 | 5.0 | rises |

| calls a second on one instance | all instances µs a decision | decisions/s |
|:--- | ---:| ---:|
| 8000 | 40.0 (36.0-48.0) | 7980 (7770-8110) |

| doubling the calls a second on one instance | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| all instances | -10.0 | 2.0 | rises |

| doubling the instances, same load in all | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| Redis | +5.0 | 2.0 | rises |
| all instances | +25.0 | 4.0 | rises |

| doubling the instances, same load each | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| all instances | +2.0 | 1.0 | rises |

| doubling the primaries, same load in all | µs | ± µs | % | ± % | in short |
|:--- | ---:| ---:| ---:| ---:| ---:|
| Sash coalesce, rueidis: client | +1.000 | 0.300 | +11.0 | 3.0 | rises |
| Sash coalesce, rueidis: Redis | - | - | +31.0 | 4.0 | rises |

| doubling the primaries, same load each | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| Sash coalesce, rueidis: Redis | +0.5 | 1.0 | rises |

| doubling the subjects | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| Redis µs a decision | +1.0 | 0.5 | rises |

| doubling the keys | µs for one more key | ± µs for one more | % | ± % | in short |
|:--- | ---:| ---:| ---:| ---:| ---:|
| Redis µs a decision | +6.000 | 0.300 | +60.0 | 7.0 | rises |

| doubling the limits | µs for one more limit | ± µs for one more | % | ± % | in short |
|:--- | ---:| ---:| ---:| ---:| ---:|
| Redis µs a decision | +1.500 | 0.150 | +33.0 | 6.0 | rises |

| doubling the decisions in a script | % | ± % | in short |
|:--- | ---:| ---:| ---:|
| Redis µs a decision | -20.0 | 3.0 | falls |

| subjects | bytes a subject |
|:--- | ---:|
| 1000000 | 300 |

| keys | calls a key | bytes a key |
|:--- | ---:| ---:|
| 1000000 | 1 | 350 |
`

var places = func() (all string) {
	for _, name := range []string{"slopes", "memory", "instances", "primaries", "a million"} {
		all += "<!-- make bench-scale writes this table: " + name + " -->\n\nold\n\n<!-- end of the table -->\n"
	}
	return all
}()

// By hand, at 21 primaries and 10 instances: 3.32 doublings of the instances, 4.39 of the primaries, and of the subjects
// those from 10,000 to 476,190, which are 5.57. Redis: 10 × 1.02 × 1.17 × 1.06 = 12.6 µs in steps of three digits, so 12.6
// processors, and 21 at 60 %. At the least 9 × 1 × 1.1 × 1.03, at the most 12 × 1.07 × 1.23 × 1.08. The service: 40 × 1.07 +
// 4.39 = 47.2 µs, 47.2 processors, and 9.83 instances of 8 at 60 %.
func TestTheArithmeticByHand(t *testing.T) {
	got, err := fill(places, figures)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| the calls a second on one Redis | 47,619 | 31,790 | -20.0 % ± 5, not counted |  | 10 (9 to 12) µs |",
		"| the primaries, each with the same load | 21 | 8 | +0.5 % ± 1 | 4.39 | × 1.02 (1 to 1.07) |",
		"| the instances, with the same load in all | 10 | 8 | +5.0 % ± 2 | 3.32 | × 1.17 (1.1 to 1.23) |",
		"| the subjects of one Redis | 476,190 | 1,000,000 | +1.0 % ± 0.5 | 5.57 | × 1.06 (1.03 to 1.08) |",
		"| in all |  |  |  |  | 12.6 (10.2 to 17) µs |",
		"| **primaries, 60 % busy** |  |  |  |  | **21 (17 to 29)** |",
		"| the calls a second on one instance | 100,000 | 7,980 | -10.0 % ± 2, not counted |  | 40 (36 to 48) µs |",
		"| the instances, each with the same load | 10 | 8 | +2.0 % ± 1 | 3.32 | × 1.07 (1.03 to 1.1) |",
		"| the primaries, with the same load in all: the client | 21 | 8 | +1.000 ± 0.300 µs | 4.39 | + 4.39 (3.07 to 5.71) µs |",
		"| in all |  |  |  |  | 47.2 (40.2 to 58.5) µs |",
		"| **instances of 8 processors, 60 % busy** |  |  |  |  | **10 (9 to 13)** |",
		"2 × 21 = 42 |",
		"10 instances × 21 primaries = 210 |",
		"100,000 decisions a second × (0.5 + 0.5) kB = 800 Mbit/s |",
		"(300 + 20 × 13) bytes = 5.6 GB, 0.267 GB a primary",
		"+6.000 ± 0.300 µs of Redis: 10 (10 to 11) more primaries",
		"1.49 to 1.69 GB | 1.93 to 3.52 GB |", // 300 + 99 × 12 or 14 bytes, and 350 + 99 × 16 or 32
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it has no %q", want)
		}
	}
	if t.Failed() || strings.Contains(got, "old") {
		t.Error(got)
	}
}

// More instances that took less time each add nothing.
func TestASlopeBelowZeroCountsAsZero(t *testing.T) {
	got, err := fill(places, strings.Replace(figures, "| all instances | +2.0 | 1.0 |", "| all instances | -2.0 | 3.0 |", 1))
	if want := "| -2.0 % ± 3 | 3.32 | × 1 (1 to 1.03) |"; err != nil || !strings.Contains(got, want) {
		t.Errorf("error %v, and it has no %q:\n%s", err, want, got)
	}
}

// Every figure counts: if one of them changes, so does the page.
func TestEveryFigureCounts(t *testing.T) {
	before, err := fill(places, figures)
	if err != nil {
		t.Fatal(err)
	}
	cells := regexp.MustCompile(`[0-9]\.[0-9]|\| 3[05]0 \||[0-9]{3}0 \(`).FindAllStringIndex(figures, -1)
	if len(cells) != 2*3+(12+3)*2+2+2 {
		t.Fatalf("%d figures found, want three of each of two times, two of each of twelve slopes in per cent and of three in µs, two of bytes and two of calls", len(cells))
	}
	for _, at := range cells {
		digit := slices.Index([]byte(figures[at[0]:at[1]]), '.') - 1
		if digit < 0 {
			digit = 2
		}
		changed := []byte(figures)
		if i := at[0] + digit; changed[i] == '9' {
			changed[i] = '4'
		} else {
			changed[i] = '9'
		}
		after, err := fill(places, string(changed))
		if err != nil || after == before {
			line := strings.LastIndexByte(figures[:at[0]], '\n') + 1
			t.Errorf("error %v, and nothing changes with %q in\n%s", err, string(changed[at[0]:at[1]]), figures[line:at[1]])
		}
	}
}

func TestAFigureThatIsMissingIsNamed(t *testing.T) {
	for _, c := range []struct{ cell, instead, want string }{
		{"| Redis | +5.0 |", "| Valkey | +5.0 |", `the row ["Redis"] in the table "doubling the instances, same load in all"`},
		{"| 40.0 (36.0-48.0) |", "| - |", `"-" in the table "calls a second on one instance"`},
		{"| store, calls a second | Redis", "| store | Redis", `the table "store, calls a second"`},
		{"| µs for one more key |", "| more |", `no cell "µs for one more key"`},
		{"| 300 |", "| many |", `"many"`},
	} {
		changed := strings.Replace(figures, c.cell, c.instead, 1)
		if _, err := fill(places, changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %q: error %v, want one that has %q", c.instead, err, c.want)
		}
	}
	if _, err := fill("no place", figures); err == nil || !strings.Contains(err.Error(), "make bench-scale writes this table") {
		t.Errorf("a page without a place: %v", err)
	}
}
