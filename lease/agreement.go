package lease

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Terms are what regions agree on: how many they are, and the percent of every limit that each has for itself.
type terms struct{ regions, percent int64 }

func (t terms) String() string {
	return fmt.Sprintf("%d regions with %d %% of each limit for each", t.regions, t.percent)
}

// An agreement is what the home keeps of the regions: their terms, and which of them has an own share in which store, until
// an instant of the home's clock.
type agreement struct {
	terms
	members []member
}

type member struct {
	region, store string
	until         int64
}

var errText = errors.New("lease: what is kept about regions was not written by this version")

// readAgreement reads the text of an agreement. That of an empty text has no members and no terms.
func readAgreement(text string) (a agreement, err error) {
	lines := strings.Split(text, "\n")
	if text == "" {
		return agreement{}, nil
	}
	head, err := numbers(strings.Fields(lines[0]), 3)
	if err != nil || head[0] != 1 {
		return agreement{}, errText
	}
	a.terms = terms{head[1], head[2]}
	if a.check() != nil {
		return agreement{}, errText
	}
	for _, line := range lines[1:] {
		words := strings.Fields(line)
		if len(words) != 3 {
			return agreement{}, errText
		}
		until, err := numbers(words[2:], 1)
		if err != nil {
			return agreement{}, errText
		}
		a.members = append(a.members, member{words[0], words[1], until[0]})
	}
	return a, nil
}

func (a agreement) text() string {
	var b strings.Builder
	fmt.Fprint(&b, 1, " ", a.regions, " ", a.percent)
	for _, m := range a.members {
		fmt.Fprint(&b, "\n", m.region, " ", m.store, " ", m.until)
	}
	return b.String()
}

// at returns the agreement as it is at an instant: without the members that have ended.
func (a agreement) at(now int64) agreement {
	is := agreement{terms: a.terms}
	for _, m := range a.members {
		if m.until > now {
			is.members = append(is.members, m)
		}
	}
	return is
}

// ends returns when the last member ends.
func (a agreement) ends() (last int64) {
	for _, m := range a.members {
		last = max(last, m.until)
	}
	return last
}

// has reports whether a region is a member until an instant or later.
func (a agreement) has(region string, until int64) bool {
	return slices.ContainsFunc(a.members, func(m member) bool { return m.region == region && m.until >= until })
}

// join adds a member under its terms, or prolongs it. The error says why it has no own share. The terms are those of the
// first, until every member has ended.
func (a agreement) join(t terms, m member) (agreement, error) {
	if len(a.members) == 0 {
		return agreement{t, []member{m}}, nil
	}
	if a.terms != t {
		return a, fmt.Errorf("lease: other regions have agreed on %v, and this one has %v: give all of them the same", a.terms, t)
	}
	all := agreement{terms: t}
	found := false
	for _, o := range a.members {
		if o.region == m.region {
			if o.store != m.store {
				return a, fmt.Errorf("lease: another store has the name %q: it is that of another region, or this region's store has lost its state or been "+
					"restarted since; the name is free two days after that one was last heard of", m.region)
			}
			o.until, found = max(o.until, m.until), true
		}
		all.members = append(all.members, o)
	}
	if !found {
		if int64(len(all.members)) >= t.regions {
			return a, fmt.Errorf("lease: %d regions have own shares already, and %q is not one of them: give all regions their number", t.regions, m.region)
		}
		all.members = append(all.members, m)
	}
	return all, nil
}

// A record is what the store of a region keeps: its name among stores, and until when the region has an own share under
// which terms. It counts in the server process that wrote it only, because another one may have lost charges.
type record struct {
	process, store string
	terms
	until int64 // of the store's clock; zero is no own share
}

func readRecord(text string) (r record, err error) {
	if text == "" {
		return record{}, nil
	}
	words := strings.Fields(text)
	if len(words) != 6 || words[0] != "1" {
		return record{}, errText
	}
	process, err := hex.DecodeString(words[1])
	if err != nil {
		return record{}, errText
	}
	n, err := numbers(words[3:], 3)
	if err != nil {
		return record{}, errText
	}
	return record{process: string(process), store: words[2], terms: terms{n[0], n[1]}, until: n[2]}, nil
}

func (r record) text() string {
	return fmt.Sprint(1, " ", hex.EncodeToString([]byte(r.process)), " ", r.store, " ", r.regions, " ", r.percent, " ", r.until)
}

// numbers reads so many numbers.
func numbers(words []string, n int) ([]int64, error) {
	if len(words) != n {
		return nil, errText
	}
	all := make([]int64, n)
	for i, word := range words {
		var err error
		if all[i], err = strconv.ParseInt(word, 10, 64); err != nil || all[i] < 0 {
			return nil, errText
		}
	}
	return all, nil
}
