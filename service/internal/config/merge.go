package config

import "go.yaml.in/yaml/v3"

// Bounds of merge keys, which can expand a small file into a large one.
const (
	maxMergeDepth = 100
	maxMerged     = 1_000_000 // pairs, of all files
)

// A pair is a key of a mapping and its value.
type pair struct{ key, value *yaml.Node }

// pairs returns the pairs of a mapping, with those that its merge keys (<<) bring. As in Envoy's service the last one of a
// key counts, in the order of the file, so that a merge key after a key replaces it; and two mappings, such as those of
// rate_limit, become one with the keys of both. Without a merge key, a key that is there twice is an error.
func (r *reader) pairs(n *yaml.Node, what string, depth int) ([]pair, error) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return nil, r.errorf(n, "%s must be a mapping of keys to values", what)
	}
	out := make([]pair, 0, len(n.Content)/2)
	at := make(map[string]int, len(n.Content)/2) // where a key is in out
	own := make(map[string]int, len(n.Content)/2)
	put := func(p pair) {
		name := p.key.Value
		i, there := at[name]
		if !there {
			at[name] = len(out)
			out = append(out, p)
			return
		}
		out[i] = pair{p.key, together(out[i].value, p.value)}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isMerge(key) {
			merged, err := r.merged(value, depth+1)
			if err != nil {
				return nil, err
			}
			for _, p := range merged {
				put(p)
			}
			continue
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" {
			return nil, r.errorf(key, "unknown key %q: keys are words", clip(key.Value))
		}
		if line, twice := own[key.Value]; twice {
			return nil, r.errorf(key, "duplicate key %q, first on line %d", clip(key.Value), line)
		}
		own[key.Value] = key.Line
		put(pair{key, value})
	}
	return out, nil
}

// merged returns the pairs that the value of a merge key brings: of one mapping, or of a list of them, in which the first
// one that has a key counts.
func (r *reader) merged(n *yaml.Node, depth int) ([]pair, error) {
	from := []*yaml.Node{n}
	if list := resolve(n); list.Kind == yaml.SequenceNode {
		from = list.Content
	}
	var all []pair
	for i := len(from) - 1; i >= 0; i-- {
		if depth > maxMergeDepth {
			return nil, r.errorf(n, "<< is nested more than %d deep", maxMergeDepth)
		}
		pairs, err := r.pairs(from[i], "the value of <<", depth)
		if err != nil {
			return nil, err
		}
		if r.notes.merged += len(pairs) + 1; r.notes.merged > maxMerged {
			return nil, r.errorf(n, "<< brings more than %d keys", maxMerged)
		}
		all = append(all, pairs...)
	}
	return all, nil
}

// together returns the value of a key that has two, the second of which counts.
func together(first, second *yaml.Node) *yaml.Node {
	if resolve(first).Kind != yaml.MappingNode || resolve(second).Kind != yaml.MappingNode {
		return second
	}
	merge := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!merge", Value: "<<", Line: second.Line}
	list := &yaml.Node{Kind: yaml.SequenceNode, Line: second.Line, Content: []*yaml.Node{second, first}}
	return &yaml.Node{Kind: yaml.MappingNode, Line: second.Line, Content: []*yaml.Node{merge, list}}
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && key.ShortTag() == "!!merge"
}

// maxWarnings is the most warnings that a configuration keeps, and the most files that it names as not read.
const maxWarnings = 100

// notes are what a parser notes beside the configuration.
type notes struct {
	warnings []string
	merged   int // pairs that merge keys brought
}
