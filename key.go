package sash

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPart is the most bytes of one part that a key spells out, and maxParts the most of all parts.
const (
	maxPart  = 96
	maxParts = 300
)

// Key builds a key from parts: Key("user", "42") is "user:42". Different parts always give different keys: the
// separator, braces, control characters and bytes outside ASCII are escaped as %XX, and long parts are replaced by
// their SHA-256. The key is safe to print, has no Redis Cluster hash tag, and is at most MaxKeyLength bytes.
func Key(parts ...string) string { return build("", parts) }

// KeyTogether builds a key like [Key], with a Redis Cluster hash tag: all keys with the same tag live in the same slot, so that
// [Limiter.AllowAll] can decide over them in one step on a cluster. KeyTogether("t1", "user", "42") is "{t1}:user:42".
func KeyTogether(tag string, parts ...string) string {
	if tag == "" {
		return build("{~}:", parts) // Redis takes an empty tag for none
	}
	return build("{"+string(appendPart(nil, tag))+"}:", parts)
}

func build(prefix string, parts []string) string {
	var room [128]byte // most keys fit, and then the key is the only allocation
	b := append(room[:0], prefix...)
	for i, part := range parts {
		if i > 0 {
			b = append(b, ':')
		}
		b = appendPart(b, part)
	}
	if len(b)-len(prefix) <= maxParts {
		return string(b)
	}
	return prefix + "~" + digest(string(b[len(prefix):])) // two marks: not the digest of a single part
}

// appendPart spells a part in letters, digits and harmless punctuation, or as a digest, which begins like no spelled part.
func appendPart(b []byte, part string) []byte {
	if len(part) > maxPart {
		return append(b, digest(part)...)
	}
	const hex = "0123456789ABCDEF"
	before := len(b)
	for i := range len(part) {
		if c := part[i]; harmless(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	if len(b)-before > maxPart {
		return append(b[:before], digest(part)...)
	}
	return b
}

func harmless(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.@/+=,;!*()$&'", c) >= 0
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "~" + strconv.Itoa(len(s)) + "~" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Secret turns a token, a password or another secret into a part for [Key] that does not reveal it: its HMAC-SHA-256 under a key of the
// application, in 43 characters. The same secret gives the same part as long as the application's key stays the same. After a change of
// that key every subject begins anew, and may be admitted its limits once more at most; the old key is not needed. Give the key at least
// 32 random bytes. An empty secret stays empty, so that a missing token does not look like one.
func Secret(hmacKey []byte, secret string) string {
	if secret == "" {
		return ""
	}
	mac := hmac.New(sha256.New, hmacKey)
	mac.Write([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// names reports whether a key names a subject: it is not blank, and has a part that is not empty.
func names(key string) bool {
	for i := range len(key) {
		switch c := key[i]; {
		case c >= utf8.RuneSelf:
			return strings.TrimSpace(key) != ""
		case c > ' ' && c != ':':
			return true
		}
	}
	return false
}
