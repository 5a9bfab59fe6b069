package accesslog

import "fmt"

// finerTime makes the field of the time that is finer the first, if the one that would be used has whole seconds and both
// name the same second in all samples. It returns a sentence for Stats, or "".
func (n naming) finerTime(samples []others) string {
	if len(n["time"]) == 1 || len(samples) == 0 {
		return ""
	}
	used, _ := n.find("time", samples[0])
	for _, name := range n["time"] {
		if name == used {
			continue
		}
		switch compareTimes(samples, used, name) {
		case finer:
			n["time"] = append([]string{name}, n["time"]...)
			return fmt.Sprintf("The times are those of %s, which are finer than those of %s.", name, used)
		case other:
			return fmt.Sprintf("The times are those of %s, in whole seconds. Those of %s are finer, but not of the same seconds: name that field as the time if they are the requests'.", used, name)
		}
	}
	return ""
}

const (
	noFiner = iota
	finer   // the same seconds, with a fraction
	other   // with a fraction, of other seconds
)

// compareTimes compares another field of the time with the one that is used.
func compareTimes(samples []others, used, name string) int {
	fraction, same := false, true
	for _, s := range samples {
		a, err := parseTime(s.field(used))
		if err != nil {
			continue // broken, or of another program
		}
		b, err := parseTime(s.field(name))
		if err != nil || a%1_000_000 != 0 {
			return noFiner
		}
		fraction = fraction || b%1_000_000 != 0
		same = same && a/1_000_000 == b/1_000_000
	}
	switch {
	case !fraction:
		return noFiner
	case same:
		return finer
	}
	return other
}
