package goredisstore

import "strings"

// sameTag reports whether a ring places all keys on the same shard whatever its shards are.
func sameTag(keys []string) bool {
	for _, key := range keys {
		if tag(key) != tag(keys[0]) {
			return false
		}
	}
	return true
}

// tag returns what a ring hashes of a key: what is between the first brace and the next closing one, or
// all of the key when that is empty.
func tag(key string) string {
	if _, after, found := strings.Cut(key, "{"); found {
		if inner, _, closed := strings.Cut(after, "}"); closed && inner != "" {
			return inner
		}
	}
	return key
}
