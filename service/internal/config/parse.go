package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a file. Aliases can expand a small file into a large one, so descriptors are counted as they are read.
const (
	maxDepth       = 256
	maxDescriptors = 200_000
)

// usualDepth is enough for the path of almost every request.
const usualDepth = 16

// A File is the text of one file. Errors begin with its name and the line, as "name:line: ".
type File struct {
	Name string
	Text []byte
}

// Parse parses a configuration of several files with these defaults. With merge, several documents can add
// descriptors to one domain; without it, each domain has one document.
func Parse(defaults Defaults, merge bool, files ...File) (*Config, error) {
	p := &parser{
		Reader:       Reader{Notes: &Notes{}, defaults: defaults},
		config:       &Config{domains: make(map[string]*domain), defaults: defaults},
		seen:         make(map[string]string),
		merge:        merge,
		keyWildcards: make(map[*domain][]keyWildcard),
	}
	if len(files) == 0 {
		return nil, errors.New("there is no file with a domain")
	}
	for _, file := range files {
		p.File = file.Name
		found := false
		p.Documents(file.Text, func(root *yaml.Node) {
			found = true
			p.document(root)
		})
		if p.Err == nil && !found { // perhaps the file is being written: without it the limits of its domain would be missing
			return nil, fmt.Errorf("%s: no domain: a configuration begins with \"domain: name\", followed by descriptors", file.Name)
		}
	}
	if p.Err == nil {
		p.Err = p.secrets()
	}
	if p.Err != nil {
		return nil, p.Err
	}
	p.config.warnings = p.Warnings
	return p.config, nil
}

type parser struct {
	Reader
	config      *Config
	seen        map[string]string // the first position of each domain and composite key
	merge       bool
	descriptors int

	keyWildcards map[*domain][]keyWildcard
}

func (p *parser) document(root *yaml.Node) {
	d := &domain{descriptors: newLevel(), keys: make(map[string]*secrecy), headersOnly: p.defaults.HeadersOnly}
	var descriptors *yaml.Node
	domainLine := root
	p.Mapping(root, "a document", map[string]Field{
		"domain":      func(n *yaml.Node) { domainLine = n; p.Str("the domain", &d.name)(n) },
		"descriptors": func(n *yaml.Node) { descriptors = n },
	})
	if d.name == "" {
		p.Fail(domainLine, "the domain is missing or empty")
	}
	if known := p.config.domains[d.name]; known != nil && p.merge {
		d = known
	} else {
		p.once(domainLine, "domain", d.name)
		p.config.domains[d.name] = d
		p.config.names = append(p.config.names, d.name)
	}
	if descriptors != nil {
		p.level(descriptors, d, nil, d.descriptors)
	}
}

func (p *parser) level(n *yaml.Node, in *domain, path []Entry, into *level) {
	if len(path) >= maxDepth {
		p.Fail(n, "descriptors are nested more than %d deep", maxDepth)
		return
	}
	p.List(n, "descriptors", func(n *yaml.Node) {
		if p.descriptors++; p.descriptors > maxDescriptors {
			p.Fail(n, "more than %d descriptors", maxDescriptors)
			return
		}
		p.descriptor(n, in, path, into)
	})
}

func (p *parser) descriptor(n *yaml.Node, in *domain, path []Entry, into *level) {
	body := &ruleBody{Reader: &p.Reader}
	p.Mapping(n, "a descriptor", p.Fields(body))
	d := &descriptor{entry: Entry{body.Key, body.Value}, share: body.Share, inMetric: body.InMetric, children: newLevel()}
	entry := d.entry
	d.wildcard = newWildcard(entry)
	switch {
	case entry.Key == "":
		p.Fail(n, "the key of a descriptor is missing or empty")
	case d.share && d.wildcard == nil:
		p.Fail(n, "share_threshold needs a value with *, such as one that ends in *, not %q", Clip(entry.Value))
	}
	path = append(slices.Clip(path), entry)
	p.once(n, "descriptor", position(in.name, path))
	p.recordSecrecy(n, in, d, body.Secret)
	metadata := p.metadata(body.Metadata)
	rule := body.rule(n)
	if p.Err != nil {
		return
	}
	if rule != nil {
		rule.Line = p.File + ":" + strconv.Itoa(n.Line)
		rule.Domain, rule.Path, rule.Label, rule.Metadata = in.name, path, label(path), metadata
		p.config.rules = append(p.config.rules, rule)
		d.rule = rule
	}
	into.exact[entry] = d
	if d.wildcard != nil {
		into.wildcards = append(into.wildcards, d)
	}
	if body.Descriptors != nil {
		p.level(body.Descriptors, in, path, d.children)
	}
}

// metadata reads data that answers may send to Envoy: values that JSON has.
func (p *parser) metadata(n *yaml.Node) (all map[string]any) {
	if n == nil || IsNull(Resolve(n)) {
		return nil
	}
	if Resolve(n).Kind != yaml.MappingNode {
		p.Fail(n, "metadata must be a mapping of keys to values")
		return nil
	}
	err := Resolve(n).Decode(&all)
	if err == nil {
		_, err = json.Marshal(all)
	}
	if err != nil {
		p.Warn(n, "metadata is not sent to Envoy, because JSON has no form for it: %s", plain(err))
		return nil
	}
	return all
}

func (p *parser) once(n *yaml.Node, what, name string) {
	id := what + " " + name
	if first, twice := p.seen[id]; twice {
		if line, here := strings.CutPrefix(first, p.File+":"); here {
			first = "line " + line
		}
		p.Fail(n, "duplicate %s, first on %s", Clip(id), first)
	}
	p.seen[id] = p.File + ":" + strconv.Itoa(n.Line)
}

// String returns the position of the rule, such as "demo / remote_address".
func (r *Rule) String() string { return position(r.Domain, r.Path) }

func position(domain string, path []Entry) string {
	text := quote(domain)
	for _, e := range path {
		text += " / " + spell(e)
	}
	return text
}

func spell(e Entry) string {
	if e.Value == "" {
		return quote(e.Key)
	}
	return quote(e.Key) + "=" + quote(e.Value)
}

// label names a path as metric does, without the domain and the values of requests.
func label(path []Entry) string {
	names := make([]string, len(path))
	for i, e := range path {
		if names[i] = e.Key; e.Value != "" {
			names[i] += "_" + e.Value
		}
	}
	return strings.Join(names, ".")
}

func quote(s string) string {
	if strings.ContainsAny(s, " /=\"\\\n\r\t") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
