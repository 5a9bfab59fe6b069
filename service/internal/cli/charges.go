package cli

import (
	"context"

	"example.com/sash"
	"example.com/sash/memstore"
	"example.com/sash/service/internal/admin"
)

// inMemory reads the logs of a store in memory.
func inMemory(store *memstore.Store) func(context.Context, string, *sash.Policy) (admin.Charges, error) {
	return func(_ context.Context, key string, policy *sash.Policy) (admin.Charges, error) {
		entries, at := store.Inspect(key, policy)
		out := admin.Charges{At: at, Entries: make([]admin.Charge, 0, len(entries))}
		for _, e := range entries {
			out.Entries = append(out.Entries, admin.Charge{At: e.At, Units: e.Units})
		}
		return out, nil
	}
}
