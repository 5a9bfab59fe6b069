package driver

import "time"

// A Witness is a store that knows which servers leave it without an answer.
type Witness interface {
	// Silent names the servers that have owed an answer for at least d, or to which there is no connection, in words
	// for an error. It is empty if there is none. It must not block.
	Silent(d time.Duration) string
}

// Silent returns what a store, or the first store behind it that is a [Witness], says of its servers.
func Silent(store Store, d time.Duration) string {
	for range maxDecorators {
		if w, ok := store.(Witness); ok {
			return w.Silent(d)
		}
		decorator, ok := store.(Decorator)
		if !ok {
			return ""
		}
		store = decorator.Unwrap()
	}
	return ""
}
