package config

import (
	"slices"
	"testing"

	"example.com/sash/service"
)

// Two files together have the rules of both, or are refused for a reason: one of them is wrong, or they have a
// domain in common.
func FuzzParseAll(f *testing.F) {
	f.Add(service.Example, []byte(envoyText), false)
	f.Add([]byte("domain: d\ndescriptors: [{key: a, limits: [1/1s]}]\n"), []byte("domain: d\ndescriptors: [{key: b, limits: [1/1s]}]\n"), true)
	f.Add([]byte("domain: d\n"), []byte("domain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: x}]}}]\n"), true)
	f.Fuzz(func(t *testing.T, a, b []byte, merge bool) {
		files := []File{{Name: "a.yaml", Text: a}, {Name: "b.yaml", Text: b}}
		one, wrongA := ParseAll(merge, files[0])
		two, wrongB := ParseAll(merge, files[1])
		both, err := ParseAll(merge, files...)
		switch {
		case wrongA != nil || wrongB != nil:
			if err == nil {
				t.Errorf("taken together, although alone %v, %v", wrongA, wrongB)
			}
		case err == nil:
			if got, want := len(both.Rules()), len(one.Rules())+len(two.Rules()); got != want {
				t.Errorf("%d rules, want %d", got, want)
			}
		case !slices.ContainsFunc(one.Domains(), func(domain string) bool { return slices.Contains(two.Domains(), domain) }):
			t.Errorf("refused, with no domain in common: %v", err)
		}
	})
}
