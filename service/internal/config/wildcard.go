package config

import "strings"

// A wildcard matches entries by a descriptor with * in its value or its key. Each * stands for any bytes, or none, also
// in the middle:
//
//	key: path,  value: /api/*/action    any path of that form
//	key: path*                          any entry whose key begins with path
//
// With * in the key the pattern is compared with the whole entry, key and value joined by _, as in Envoy's service: path*
// matches the entries path=/x and path_prefix=/x. Without, the key is compared by itself.
type wildcard struct {
	key     string // that entries must have; "" if the pattern covers the key too
	pattern string
	parts   []string // of the pattern between each *: at least two
}

// newWildcard returns the wildcard of a descriptor's entry, or nil if it has no *.
func newWildcard(e Entry) *wildcard {
	w := &wildcard{key: e.Key, pattern: e.Value}
	if strings.Contains(e.Key, "*") {
		w.key, w.pattern = "", e.Key
		if e.Value != "" {
			w.pattern += "_" + e.Value
		}
	}
	if w.parts = strings.Split(w.pattern, "*"); len(w.parts) < 2 {
		return nil
	}
	return w
}

func (w *wildcard) matches(e Entry) bool {
	if w.key == "" {
		return w.covers(e.Key + "_" + e.Value)
	}
	return w.key == e.Key && w.covers(e.Value)
}

// covers reports whether a text consists of the parts, with anything between them. Where a part in the middle occurs
// several times its first place is as good as any: it leaves the most for the parts that follow.
func (w *wildcard) covers(text string) bool {
	last := len(w.parts) - 1
	text, found := strings.CutPrefix(text, w.parts[0])
	if !found {
		return false
	}
	for _, part := range w.parts[1:last] {
		if _, text, found = strings.Cut(text, part); !found {
			return false
		}
	}
	return strings.HasSuffix(text, w.parts[last])
}

// coversAll reports whether the pattern covers every text that begins with a given one.
func (w *wildcard) coversAll(start string) bool {
	return w.parts[len(w.parts)-1] == "" && w.covers(start)
}

// begins reports whether the pattern covers some text that begins with a given one.
func (w *wildcard) begins(start string) bool {
	return strings.HasPrefix(start, w.parts[0]) || strings.HasPrefix(w.parts[0], start)
}

// shown returns the value that stands for all values of a key under the wildcard: in metrics, and with share_threshold
// in the subject.
func (w *wildcard) shown(key string) string {
	if w.key != "" {
		return w.pattern
	}
	return strings.TrimPrefix(w.pattern, key+"_")
}
