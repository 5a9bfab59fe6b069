package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the file in bytes. It has room for some thousand clients.
const maxFile = 1 << 20

// A digest is the SHA-256 of a token. A token is looked up by it, so that the time of the look-up says nothing about it.
type digest [sha256.Size]byte

// clients are the contents of a file. They do not change.
type clients struct {
	all          []*client
	tokens       map[digest]*client
	certificates map[string]*client // by DNS name, in small letters
	anonymous    grant
}

type client struct {
	name string
	grant
}

// unlisted is what holds without a Gate.
var unlisted = &clients{anonymous: grant{"": Decide}}

// A text is a scalar of the file, and the line that it is on.
type text struct {
	value string
	line  int
}

func (t *text) UnmarshalYAML(n *yaml.Node) error {
	switch {
	case n.Kind != yaml.ScalarNode:
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: it must be a text", n.Line)}}
	case n.Value == "":
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: it must not be empty", n.Line)}}
	}
	t.value, t.line = n.Value, n.Line
	return nil
}

// A document is a file as it is written.
type document struct {
	Clients []struct {
		Name         text   `yaml:"name"`
		Tokens       []text `yaml:"tokens"`
		Certificates []text `yaml:"certificates"`
		Grant        `yaml:",inline"`
	} `yaml:"clients"`
	Anonymous *Grant `yaml:"anonymous"`
}

// A Grant is the part that clients and anonymous callers have in common. It is exported for package yaml alone.
type Grant struct {
	Allow   allowed `yaml:"allow"`
	Domains []text  `yaml:"domains"`
}

// everywhere is the domain of rights that hold in all domains, in the map of allow.
const everywhere = "*"

// allowed are rights in each domain, or as a list the same ones in each of Domains.
type allowed struct {
	list []text
	each map[text][]text
}

func (a *allowed) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode {
		return n.Decode(&a.each)
	}
	return n.Decode(&a.list)
}

// parse reads a file. Errors begin with its name and the line.
func parse(name string, data []byte) (*clients, error) {
	p := &parser{file: name, seen: make(map[string]int)}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: the file is larger than %d bytes", name, maxFile)
	}
	doc, err := p.decode(data)
	if err != nil {
		return nil, err
	}
	if len(doc.Clients) == 0 && doc.Anonymous == nil { // as in a file that is cut off
		return nil, fmt.Errorf("%s: there are no clients and no anonymous: nobody could do anything (anonymous: {allow: []} says so)", name)
	}
	all := &clients{tokens: make(map[digest]*client), certificates: make(map[string]*client)}
	for i := range doc.Clients {
		given := &doc.Clients[i]
		c := &client{name: given.Name.value}
		if c.name == "" {
			return nil, fmt.Errorf("%s: client %d has no name", name, i+1)
		}
		if err := p.once("the client", given.Name); err != nil {
			return nil, err
		}
		if len(given.Tokens)+len(given.Certificates) == 0 {
			return nil, p.errorf(given.Name, "the client %q has no tokens and no certificates: nobody could be it (sash token makes a token)", c.name)
		}
		if len(given.Allow.list)+len(given.Allow.each) == 0 {
			return nil, p.errorf(given.Name, "the client %q may do nothing: give it allow, such as [decide]", c.name)
		}
		for _, t := range given.Tokens {
			sum, err := hex.DecodeString(t.value)
			if err != nil || len(sum) != sha256.Size {
				return nil, p.errorf(t, "a token is listed by its SHA-256, which has 64 digits in hex, and never in clear text: sash token prints both")
			}
			if blank[digest(sum)] {
				return nil, p.errorf(t, "this is the SHA-256 of an empty text: whoever made it had no token (sash token makes one)")
			}
			t.value = hex.EncodeToString(sum)
			if err := p.once("the token", t); err != nil {
				return nil, err
			}
			all.tokens[digest(sum)] = c
		}
		for _, t := range given.Certificates {
			t.value = strings.ToLower(t.value)
			if err := p.once("the certificate", t); err != nil {
				return nil, err
			}
			all.certificates[t.value] = c
		}
		if c.grant, err = p.grant(&given.Grant); err != nil {
			return nil, err
		}
		all.all = append(all.all, c)
	}
	if doc.Anonymous != nil {
		all.anonymous, err = p.grant(doc.Anonymous)
	}
	return all, err
}

// blank are the digests of no token, as a shell makes them from a variable that is not set.
var blank = map[digest]bool{sha256.Sum256(nil): true, sha256.Sum256([]byte("\n")): true}

type parser struct {
	file string
	seen map[string]int // the line of each name, token and certificate
}

func (p *parser) errorf(at text, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.file, at.line, fmt.Sprintf(format, args...))
}

// once rejects what is there a second time: which client it is would depend on the order.
func (p *parser) once(what string, t text) error {
	if first, twice := p.seen[what+t.value]; twice {
		return p.errorf(t, "%s %q is there already, on line %d", what, t.value, first)
	}
	p.seen[what+t.value] = t.line
	return nil
}

// decode returns the document of a file.
func (p *parser) decode(data []byte) (*document, error) {
	doc := &document{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, p.explain(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file must be one YAML document", p.file)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, p.explain(err)
	}
	return doc, p.valued(&root)
}

// valued rejects a key without a value, which package yaml takes for one that is not there: without domains a client has
// all of them.
func (p *parser) valued(n *yaml.Node) error {
	for i, below := range n.Content {
		if below.Kind == yaml.ScalarNode && below.ShortTag() == "!!null" && n.Kind != yaml.DocumentNode {
			what, line := "a list", below.Line
			if n.Kind == yaml.MappingNode {
				what, line = strconv.Quote(n.Content[i&^1].Value), n.Content[i&^1].Line
			}
			return fmt.Errorf("%s:%d: %s has no value: write one, or leave it out", p.file, line, what)
		}
		if err := p.valued(below); err != nil {
			return err
		}
	}
	return nil
}

// grant reads what a client may do. Each domain of a list has all its rights.
func (p *parser) grant(given *Grant) (grant, error) {
	g := make(grant)
	for domain, list := range given.Allow.each {
		if given.Domains != nil {
			return nil, p.errorf(domain, "allow has its domains already: remove domains, or write allow: [decide] beside it")
		}
		rights, err := p.rights(list)
		if err != nil {
			return nil, err
		}
		if domain.value == everywhere {
			domain.value = ""
		}
		g[domain.value] |= rights
	}
	rights, err := p.rights(given.Allow.list)
	if err != nil || given.Allow.each != nil {
		return g, err
	}
	if given.Domains == nil {
		g[""] = rights
	}
	for _, t := range given.Domains {
		if t.value == everywhere {
			return nil, p.errorf(t, "* is all domains only in allow: write allow: {\"*\": [decide]}, or leave domains out")
		}
		g[t.value] = rights
	}
	return g, nil
}

func (p *parser) rights(list []text) (all Right, err error) {
next:
	for _, t := range list {
		for _, r := range rights {
			if t.value == r.name {
				all |= r.right
				continue next
			}
		}
		return 0, p.errorf(t, "there is no right %q: there are %s", t.value, All.names())
	}
	return all, nil
}

var (
	unknownField = regexp.MustCompile(`^field (\S+) not found in type .*`)
	wrongKind    = regexp.MustCompile(`^cannot unmarshal .* into \[\].*`)
)

// explain puts an error of package yaml into the words of the file's author.
func (p *parser) explain(err error) error {
	said := strings.TrimPrefix(err.Error(), "yaml: ")
	var wrong *yaml.TypeError
	if errors.As(err, &wrong) && len(wrong.Errors) > 0 {
		said = wrong.Errors[0]
	}
	rest, hasLine := strings.CutPrefix(said, "line ")
	line, rest, cut := strings.Cut(rest, ": ")
	if !hasLine || !cut {
		return fmt.Errorf("%s: %s", p.file, said)
	}
	rest = unknownField.ReplaceAllString(rest, `unknown key "$1": there are clients (name, tokens, certificates, allow, domains) and anonymous (allow, domains)`)
	rest = wrongKind.ReplaceAllString(rest, "it must be a list, such as [decide], or a list for each domain, such as {shop: [decide]}")
	return fmt.Errorf("%s:%s: %s", p.file, line, rest)
}
