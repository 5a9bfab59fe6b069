package replay

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

const defaultKey = "remote_address"

// words are the fields of expressions as people call them.
var words = map[string]string{
	defaultKey: "the address", "user": "the user", "method": "the method", "path": "the path", "query": "the query", "route": "the route",
	"host": "the host", "status": "the status", "user_agent": "the user agent", "referer": "the referer",
}

// Describe returns a key expression in words: "the /24 network of the address". It returns the expression itself, in quotes,
// if there are no words for it.
func Describe(key string) string {
	key = cmp.Or(key, defaultKey)
	if tree, err := parser.Parse(key); err == nil {
		if text, ok := describe(tree.Node); ok {
			return text
		}
	}
	return fmt.Sprintf("the value of %q", key)
}

func describe(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		word, ok := words[n.Value]
		return word, ok
	case *ast.StringNode:
		return fmt.Sprintf("%q for every request", n.Value), true
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok {
			return describeCall(callee.Value, n.Arguments)
		}
	}
	return "", false
}

func describeCall(name string, args []ast.Node) (string, bool) {
	if len(args) == 0 {
		return "", false
	}
	switch name {
	case "header", "field":
		if text, ok := args[0].(*ast.StringNode); ok && len(args) == 1 {
			return fmt.Sprintf("the %s %s", name, text.Value), true
		}
	case "prefix":
		of, ok := describe(args[0])
		if !ok || len(args) < 2 {
			return "", false
		}
		v4, v6 := args[1].String(), "64"
		if len(args) > 2 {
			v6 = args[2].String()
		}
		return fmt.Sprintf("the network of %s (/%s, of IPv6 /%s)", of, v4, v6), true
	case "key":
		parts := make([]string, len(args))
		for i, arg := range args {
			var ok bool
			if parts[i], ok = describe(arg); !ok {
				return "", false
			}
		}
		return strings.Join(parts, " with "), true
	}
	return "", false
}

// isConstant reports whether a key expression is the same text for every request.
func isConstant(key string) bool {
	tree, err := parser.Parse(cmp.Or(key, defaultKey))
	if err != nil {
		return false
	}
	_, ok := tree.Node.(*ast.StringNode)
	return ok
}
