package serve

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/memstore"
	"example.com/sash/redisstore"
	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/config"
)

// chargesInMemory returns what reads the charges of a key from a store in memory.
func chargesInMemory(store *memstore.Store) func(context.Context, config.Place, string, *driver.Policy) (admin.Charges, error) {
	return func(_ context.Context, _ config.Place, key string, policy *driver.Policy) (admin.Charges, error) {
		entries, at := store.Inspect(key, policy)
		out := admin.Charges{At: at, Entries: make([]admin.Charge, 0, len(entries))}
		for _, e := range entries {
			out.Entries = append(out.Entries, admin.Charge{At: e.At, Units: e.Units})
		}
		return out, nil
	}
}

// chargesOnRedis returns what reads the charges of a key from Redis, or from a home.
func chargesOnRedis(region *redisstore.Store, homes map[string]*redisstore.Store) func(context.Context, config.Place, string, *driver.Policy) (admin.Charges, error) {
	return func(ctx context.Context, at config.Place, key string, policy *driver.Policy) (admin.Charges, error) {
		store := region
		if at.Global {
			home, err := config.HomeOf(homes, at)
			if err != nil {
				return admin.Charges{}, err
			}
			store = home
		}
		state, err := store.Inspect(ctx, key, policy)
		if err != nil || state == nil {
			return admin.Charges{}, err
		}
		out := admin.Charges{At: state.At, Entries: make([]admin.Charge, 0, len(state.Entries))}
		for _, e := range state.Entries {
			out.Entries = append(out.Entries, admin.Charge{At: e.At, Units: e.Units})
		}
		return out, nil
	}
}
