package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"

	"example.com/sash/service/internal/config"
)

// maxFile bounds the file in bytes. It has room for some thousand clients.
const maxFile = 1 << 20

// A digest is the SHA-256 of a token. Lookups use the digest, so their duration reveals nothing about the token.
type digest [sha256.Size]byte

// clients are the contents of a file. They do not change.
type clients struct {
	all          []*client
	tokens       map[digest]*client
	certificates map[string]*client // by DNS name, in lower case
	anonymous    grant
}

type client struct {
	name string
	grant
}

// unlisted are the clients of a nil Gate.
var unlisted = &clients{anonymous: grant{"": Decide}}

// everywhere stands for all domains in the map of allow.
const everywhere = "*"

// blank are the digests of an empty token, as a shell makes it from an unset variable.
var blank = map[digest]bool{sha256.Sum256(nil): true, sha256.Sum256([]byte("\n")): true}

type parser struct {
	config.Reader
	into *clients
	seen map[string]int // the line of each name, token and certificate
}

func parse(name string, data []byte) (*clients, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: the file is larger than %d bytes", name, maxFile)
	}
	p := &parser{
		Reader: config.Reader{File: name, Notes: &config.Notes{}}, seen: make(map[string]int),
		into: &clients{tokens: make(map[digest]*client), certificates: make(map[string]*client)},
	}
	documents, given := 0, false
	p.Documents(data, func(root *yaml.Node) {
		if documents++; documents > 1 {
			p.Fail(root, "the file must be one YAML document")
		}
		p.keys(root, "the file", map[string]config.Field{
			"clients":   func(n *yaml.Node) { p.List(n, "clients", p.client) },
			"anonymous": func(n *yaml.Node) { given = true; p.grant(n, "anonymous", &p.into.anonymous, nil) },
		})
	})
	if p.Err == nil && len(p.into.all) == 0 && !given { // the file may be cut off
		return nil, fmt.Errorf("%s: there are no clients and no anonymous: nobody could do anything (anonymous: {allow: []} says so)", name)
	}
	return p.into, p.Err
}

// keys reads a mapping. A key without a value is an error, because a client without domains has all of them.
func (p *parser) keys(n *yaml.Node, what string, fields map[string]config.Field) {
	for name, read := range fields {
		fields[name] = func(n *yaml.Node) {
			p.valued(n, name)
			read(n)
		}
	}
	p.Mapping(n, what, fields)
}

func (p *parser) valued(n *yaml.Node, key string) {
	if config.IsNull(config.Resolve(n)) {
		p.Fail(n, "%q has no value: write one, or leave it out", key)
	}
}

func (p *parser) text(n *yaml.Node) string {
	text := p.Text("it", n)
	if text == "" {
		p.Fail(n, "it must not be empty")
	}
	return text
}

// once rejects a repeated text, because the order would decide which client it names.
func (p *parser) once(n *yaml.Node, what, text string) {
	if first, twice := p.seen[what+text]; twice {
		p.Fail(n, "%s %q is there already, on line %d", what, text, first)
	}
	p.seen[what+text] = n.Line
}

func (p *parser) client(n *yaml.Node) {
	c, credentials := &client{}, 0
	p.grant(n, "a client", &c.grant, map[string]config.Field{
		"name": func(n *yaml.Node) {
			c.name = p.text(n)
			p.once(n, "the client", c.name)
		},
		"tokens": func(n *yaml.Node) {
			p.List(n, "tokens", func(n *yaml.Node) { credentials++; p.token(n, c) })
		},
		"certificates": func(n *yaml.Node) {
			p.List(n, "certificates", func(n *yaml.Node) {
				credentials++
				name := strings.ToLower(p.text(n))
				p.once(n, "the certificate", name)
				p.into.certificates[name] = c
			})
		},
	})
	p.into.all = append(p.into.all, c)
	switch {
	case c.name == "":
		p.Fail(n, "client %d has no name", len(p.into.all))
	case credentials == 0:
		p.Fail(n, "the client %q has no tokens and no certificates: nobody could be it (sash token makes a token)", c.name)
	case c.grant == nil:
		p.Fail(n, "the client %q may do nothing: give it allow, such as [decide]", c.name)
	}
}

func (p *parser) token(n *yaml.Node, c *client) {
	sum, err := hex.DecodeString(p.text(n))
	switch {
	case err != nil || len(sum) != sha256.Size:
		p.Fail(n, "a token is listed by its SHA-256, which has 64 digits in hex, and never in clear text: sash token prints both")
		return
	case blank[digest(sum)]:
		p.Fail(n, "this is the SHA-256 of an empty text: whoever made it had no token (sash token makes one)")
	}
	p.once(n, "the token", hex.EncodeToString(sum))
	p.into.tokens[digest(sum)] = c
}

// grant reads a mapping that has allow and domains beside other fields. Allow is a list of rights, which apply in
// each of the domains, or a mapping of domains to lists. A grant without any right is nil.
func (p *parser) grant(n *yaml.Node, what string, into *grant, fields map[string]config.Field) {
	var allow *yaml.Node
	var domains []string // nil if there are none
	all := map[string]config.Field{
		"allow": func(n *yaml.Node) { allow = config.Resolve(n) },
		"domains": func(n *yaml.Node) {
			domains = []string{}
			p.List(n, "domains", func(n *yaml.Node) {
				if domains = append(domains, p.text(n)); domains[len(domains)-1] == everywhere {
					p.Fail(n, "* is all domains only in allow: write allow: {\"*\": [decide]}, or leave domains out")
				}
			})
		},
	}
	maps.Copy(all, fields)
	p.keys(n, what, all)
	if p.Err != nil || allow == nil || allow.Kind != yaml.ScalarNode && len(allow.Content) == 0 {
		return
	}
	*into = make(grant)
	if allow.Kind == yaml.MappingNode {
		if domains != nil {
			p.Fail(allow, "allow has its domains already: remove domains, or write allow: [decide] beside it")
		}
		for i := 0; i+1 < len(allow.Content); i += 2 {
			name, list := allow.Content[i], allow.Content[i+1]
			domain := p.text(name)
			if domain == everywhere {
				domain = ""
			}
			if _, twice := (*into)[domain]; twice {
				p.Fail(name, "the domain %q is there twice", name.Value)
			}
			p.valued(list, name.Value)
			(*into)[domain] = p.rights(list)
		}
		return
	}
	rights := p.rights(allow)
	if domains == nil {
		domains = []string{""}
	}
	for _, domain := range domains {
		(*into)[domain] = rights
	}
}

func (p *parser) rights(n *yaml.Node) (all Right) {
	p.List(n, "allow, such as [decide] or {shop: [decide]},", func(n *yaml.Node) {
		name := p.text(n)
		for _, r := range rights {
			if name == r.name {
				all |= r.right
				return
			}
		}
		p.Fail(n, "there is no right %q: there are %s", name, All.names())
	})
	return all
}
