package modeltest

import (
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/internal/redistest"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
)

// The judge accepts the scripts, and rejects each of them with a mistake.
func TestEveryMutantIsCaught(t *testing.T) {
	server := redistest.Start(t).Addr()
	texts := make(map[string]string)
	for _, s := range redisstore.Scripts() {
		texts[s.Name] = s.Text
	}
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			running := accepted(t, server, a)
			for _, group := range mutants {
				if group.algorithm != a {
					continue
				}
				for _, m := range group.mutants {
					m.old, m.new = threshold.Scripts.Put(m.old), threshold.Scripts.Put(m.new)
					t.Run(group.script+"/"+m.name, func(t *testing.T) {
						if n := strings.Count(texts[group.script], m.old); n != 1 {
							t.Fatalf("the script has the text %q %d times: the mutant has to follow the script", m.old, n)
						}
						err := judgeBuild(t, server, a, func(name, text string) string {
							if name == group.script {
								return strings.Replace(text, m.old, m.new, 1)
							}
							return text
						}, running[group.script])
						if err == nil {
							t.Fatal("nothing was found wrong with it")
						}
						what, _, _ := strings.Cut(err.Error(), "\n")
						t.Log(what)
					})
				}
			}
		})
	}
}

// accepted shows that the judge accepts the scripts, and returns the parts that run each script. No other part can find a
// mistake in it.
func accepted(t *testing.T, server string, a sash.Algorithm) map[string][]part {
	t.Helper()
	running := make(map[string][]part)
	for _, check := range parts {
		ran := make(map[string]bool)
		see := func(name, text string) string {
			ran[name] = true
			return text
		}
		if err := judgeBuild(t, server, a, see, []part{check}); err != nil {
			t.Fatal(err)
		}
		for name := range ran {
			running[name] = append(running[name], check)
		}
	}
	return running
}
