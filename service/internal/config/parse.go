package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// usualDepth is room for the path of almost every request.
const usualDepth = 16

// A File is the text of one file. Errors begin with its name and the line, as "name:line: ".
type File struct {
	Name string
	Text []byte
}

// Parse parses a configuration of several files with other defaults. With merge, several documents can add descriptors to
// one domain; without it, each domain has one document.
func Parse(defaults Defaults, merge bool, files ...File) (*Config, error) {
	p := &parser{
		config: &Config{domains: make(map[string]*domain), defaults: defaults},
		seen:   make(map[string]string),
		merge:  merge,

		keyWildcards: make(map[*domain][]keyWildcard),
	}
	if len(files) == 0 {
		return nil, errors.New("there is no file with a domain")
	}
	notes := &notes{}
	for _, file := range files {
		p.reader, p.found = reader{file: file.Name, defaults: defaults, notes: notes}, false
		if err := p.documents(file.Text); err != nil {
			return nil, err
		}
		if !p.found { // perhaps it is being written: without it the limits of its domain would be missing
			return nil, fmt.Errorf("%s: no domain: a configuration begins with \"domain: name\", followed by descriptors", file.Name)
		}
	}
	if err := p.secrets(); err != nil {
		return nil, err
	}
	p.config.warnings = notes.warnings
	return p.config, nil
}

func (p *parser) documents(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %s", p.file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if err := p.document(&document); err != nil {
			return err
		}
	}
}

type parser struct {
	reader
	config      *Config
	seen        map[string]string // the first position of each domain and composite key
	merge       bool
	descriptors int
	found       bool // a domain, in this file

	keyWildcards map[*domain][]keyWildcard
}

func (p *parser) document(n *yaml.Node) error {
	if n.Kind != yaml.DocumentNode || len(n.Content) != 1 {
		return nil
	}
	root := n.Content[0]
	if root.ShortTag() == "!!null" { // only comments
		return nil
	}
	p.found = true
	d := &domain{descriptors: newLevel(), keys: make(map[string]*secrecy), headersOnly: p.defaults.HeadersOnly}
	var descriptors *yaml.Node
	domainLine := root
	err := p.mapping(root, "a document", map[string]field{
		"domain":      func(n *yaml.Node) error { domainLine = n; return p.str("the domain", &d.name)(n) },
		"descriptors": func(n *yaml.Node) error { descriptors = n; return nil },
	})
	if err != nil {
		return err
	}
	if d.name == "" {
		return p.errorf(domainLine, "the domain is missing or empty")
	}
	if known := p.config.domains[d.name]; known != nil && p.merge {
		d = known
	} else if err := p.once(domainLine, "domain", d.name); err != nil {
		return err
	} else {
		p.config.domains[d.name] = d
		p.config.names = append(p.config.names, d.name)
	}
	if descriptors == nil {
		return nil
	}
	return p.level(descriptors, d, nil, d.descriptors)
}

// level reads the list of descriptors below a path.
func (p *parser) level(n *yaml.Node, in *domain, path []Entry, into *level) error {
	if len(path) >= maxDepth {
		return p.errorf(n, "descriptors are nested more than %d deep", maxDepth)
	}
	return p.list(n, "descriptors", func(n *yaml.Node) error {
		if p.descriptors++; p.descriptors > maxDescriptors {
			return p.errorf(n, "more than %d descriptors", maxDescriptors)
		}
		return p.descriptor(n, in, path, into)
	})
}

func (p *parser) descriptor(n *yaml.Node, in *domain, path []Entry, into *level) error {
	body := &ruleBody{reader: &p.reader}
	if err := p.mapping(n, "a descriptor", p.fields(body)); err != nil {
		return err
	}
	d := &descriptor{entry: Entry{body.Key, body.Value}, share: body.Share, inMetric: body.InMetric, children: newLevel()}
	entry := d.entry
	d.wildcard = newWildcard(entry)
	switch {
	case entry.Key == "":
		return p.errorf(n, "the key of a descriptor is missing or empty")
	case d.share && d.wildcard == nil:
		return p.errorf(n, "share_threshold needs a value with *, such as one that ends in *, not %q", clip(entry.Value))
	}
	path = append(slices.Clip(path), entry)
	if err := p.once(n, "descriptor", position(in.name, path)); err != nil {
		return err
	}
	if err := p.noteSecrecy(n, in, d, body.Secret); err != nil {
		return err
	}
	metadata, err := p.metadata(body.Metadata)
	if err != nil {
		return err
	}
	rule, err := body.rule(n)
	if err != nil {
		return err
	}
	if rule != nil {
		rule.Line = p.file + ":" + strconv.Itoa(n.Line)
		rule.Domain, rule.Path, rule.Label, rule.Metadata = in.name, path, label(path), metadata
		p.config.rules = append(p.config.rules, rule)
		d.rule = rule
	}
	into.exact[entry] = d
	if d.wildcard != nil {
		into.wildcards = append(into.wildcards, d)
	}
	if body.Descriptors == nil {
		return nil
	}
	return p.level(body.Descriptors, in, path, d.children)
}

// metadata reads data for Envoy, which answers may have: values that JSON has.
func (p *parser) metadata(n *yaml.Node) (all map[string]any, err error) {
	switch {
	case n == nil || isNull(resolve(n)):
		return nil, nil
	case resolve(n).Kind != yaml.MappingNode:
		return nil, p.errorf(n, "metadata must be a mapping of keys to values")
	}
	if err = resolve(n).Decode(&all); err == nil {
		_, err = json.Marshal(all)
	}
	if err != nil {
		p.warn(n, "metadata is not sent to Envoy, because JSON has no form for it: %s", plain(err))
		return nil, nil
	}
	return all, nil
}

// once rejects a duplicate.
func (p *parser) once(n *yaml.Node, what, name string) error {
	id := what + " " + name
	if first, twice := p.seen[id]; twice {
		if in, line, _ := strings.Cut(first, "\x00"); in == p.file {
			first = "line " + line
		} else {
			first = in + ":" + line
		}
		return p.errorf(n, "duplicate %s, first on %s", clip(id), first)
	}
	p.seen[id] = p.file + "\x00" + strconv.Itoa(n.Line)
	return nil
}

// String returns the position of the rule, such as "demo / remote_address".
func (r *Rule) String() string { return position(r.Domain, r.Path) }

func position(domain string, path []Entry) string {
	var b strings.Builder
	b.WriteString(quote(domain))
	for _, e := range path {
		b.WriteString(" / " + spell(e))
	}
	return b.String()
}

func spell(e Entry) string {
	if e.Value == "" {
		return quote(e.Key)
	}
	return quote(e.Key) + "=" + quote(e.Value)
}

// label names a path like metric does, without the domain and the values of requests.
func label(path []Entry) string {
	names := make([]string, len(path))
	for i, e := range path {
		if names[i] = e.Key; e.Value != "" {
			names[i] += "_" + e.Value
		}
	}
	return strings.Join(names, ".")
}

// quote quotes a string that would be ambiguous without quotes.
func quote(s string) string {
	if strings.ContainsAny(s, " /=\"\\\n\r\t") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
