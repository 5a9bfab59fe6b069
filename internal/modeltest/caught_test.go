package modeltest

import (
	"strings"
	"testing"

	"example.com/sash"
	"example.com/sash/internal/threshold"
	"example.com/sash/redisstore"
	"example.com/sash/redistest"
)

func TestTheJudgeAcceptsTheScripts(t *testing.T) {
	server := redistest.Start(t)
	for _, a := range sash.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			if err := newBench(t, server.Addr(), a, nil).judge(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryMutantIsCaught(t *testing.T) {
	server := redistest.Start(t)
	texts := make(map[string]string)
	for _, s := range redisstore.Scripts() {
		texts[s.Name] = s.Text
	}
	n := 0
	for _, group := range mutants {
		for _, m := range group.mutants {
			if n++; n%mutantStep != 0 {
				continue
			}
			m.old, m.new = threshold.Scripts.Put(m.old), threshold.Scripts.Put(m.new)
			t.Run(group.script+"/"+group.algorithm.String()+"/"+m.name, func(t *testing.T) {
				if n := strings.Count(texts[group.script], m.old); n != 1 {
					t.Fatalf("the script has the text %q %d times: the mutant has to follow the script", m.old, n)
				}
				b := newBench(t, server.Addr(), group.algorithm, func(name, text string) string {
					if name == group.script {
						return strings.Replace(text, m.old, m.new, 1)
					}
					return text
				})
				judge := b.judge
				if strings.HasPrefix(group.script, "held_") { // no other part runs them
					judge = b.held
				}
				err := judge()
				if err == nil {
					t.Fatal("nothing was found wrong with it")
				}
				what, _, _ := strings.Cut(err.Error(), "\n")
				t.Log(what)
			})
		}
	}
}
