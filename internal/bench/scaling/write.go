package scaling

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Figures is the page with the figures.
const Figures = "benchmarks-scale.md"

// to is the page with the tables that are computed.
const to = "scaling.md"

// Write computes the tables of scaling.md in a directory from its [Figures], and writes them there.
func Write(dir string) error {
	figures, err := os.ReadFile(filepath.Join(dir, Figures))
	if err != nil {
		return err
	}
	name := filepath.Join(dir, to)
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := fill(string(page), string(figures))
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// fill returns a page with its tables computed from figures.
func fill(text, figures string) (string, error) {
	p := read(figures)
	m, err := p.measured()
	if err != nil {
		return "", err
	}
	slopes, err := p.slopes()
	if err != nil {
		return "", err
	}
	d := m.compute()
	for name, table := range map[string]string{
		"memory": m.memory(), "slopes": slopes,
		"primaries": effects(d.redis, d.redisEach, "primaries", d.primaries),
		"instances": effects(d.service, d.serviceEach, fmt.Sprintf("instances of %d processors", processors), d.instances),
		"a million": d.rest(),
	} {
		begin, end := fmt.Sprintf("<!-- make bench-scale writes this table: %s -->\n\n", name), "\n<!-- end of the table -->\n"
		before, rest, ok1 := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok1 || !ok2 {
			return "", fmt.Errorf("scaling: %s has no place for a table: want the lines %q and %q", to, strings.TrimSpace(begin), strings.TrimSpace(end))
		}
		text = before + begin + table + end + after
	}
	return text, nil
}

// memory is the table of what a subject takes.
func (m measured) memory() string {
	million := func(first, least, most float64) string {
		total := func(call float64) string { return number((first + 99*call) * mostSubjects / 1e9) }
		return total(least) + " to " + total(most)
	}
	return fmt.Sprintf(`| memory | Redis | embedded store | from |
| --- | ---: | ---: | --- |
| a subject with one call | %s bytes | %s bytes | benchmarks-scale.md, *subjects* and *keys*: %[3]d |
| each further call in its window | %[4]d to %[5]d bytes | %[6]d to %[7]d bytes | benchmarks.md; `+"`memstore.Options.MaxKeys`"+` |
| a million subjects with 100 calls each | %[8]s GB | %[9]s GB | the lines above |
`, number(m.redisBytes), number(m.storeBytes), mostSubjects, leastCallBytes, mostCallBytes, leastHeldBytes, mostHeldBytes,
		million(m.redisBytes, leastCallBytes, mostCallBytes), million(m.storeBytes, leastHeldBytes, mostHeldBytes))
}

// slopes is the table of what a doubling of each thing changes.
func (p page) slopes() (string, error) {
	text := "| doubling | changes the time of | by | in short |\n| --- | --- | ---: | ---: |\n"
	for _, s := range []struct{ name, of, time, row string }{
		{"the subjects of one Redis", "subjects", "Redis", redisColumn},
		{"the keys of a decision, up to 4", "keys", "Redis", redisColumn},
		{"the limits of a subject", "limits", "Redis", redisColumn},
		{"the decisions in one script", "decisions in a script", "Redis", redisColumn},
		{"the calls a second on one Redis", "calls a second", "Redis", busiestStore + ": Redis"},
		{"the primaries, each with the same load", "primaries" + sameForEach, "Redis", clusterStore + ": Redis"},
		{"the primaries, with the same load in all", "primaries" + sameInAll, "Redis", clusterStore + ": Redis"},
		{"the same", "primaries" + sameInAll, "its client", clusterStore + ": client"},
		{"the calls a second on one instance", "calls a second on one instance", "the instance", "all instances"},
		{"the instances, each with the same load", "instances" + sameForEach, "the instances", "all instances"},
		{"the instances, with the same load in all", "instances" + sameInAll, "the instances", "all instances"},
		{"the same", "instances" + sameInAll, "Redis", "Redis"},
	} {
		slope, err := p.slope("doubling the "+s.of, "%", "± %", s.row)
		if err != nil {
			return "", err
		}
		verdict, err := p.cell("doubling the "+s.of, "in short", s.row)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("| %s | %s | %s | %s |\n", s.name, s.time, slope.percent(), verdict)
	}
	return text, nil
}
