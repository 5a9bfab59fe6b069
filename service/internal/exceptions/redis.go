package exceptions

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/sash/redisstore"
)

// onRedis keeps the document in one key. It needs no permissions beyond those of the scripts that decide.
type onRedis struct {
	client redis.UniversalClient
	key    string
}

//go:embed replace.lua
var replaceText string

var replace = redis.NewScript(replaceText)

// newOnRedis returns a keeper on a client, which the caller keeps owning. An empty prefix means redisstore.DefaultPrefix.
func newOnRedis(client redis.UniversalClient, prefix string) *onRedis {
	prefix = cmp.Or(prefix, redisstore.DefaultPrefix)
	return &onRedis{client, prefix + "exceptions"}
}

func (r *onRedis) version(ctx context.Context) (string, error) {
	return r.client.GetRange(ctx, r.key, 0, versionLength-1).Result()
}

func (r *onRedis) read(ctx context.Context) (document, time.Time, error) {
	now, err := r.client.Time(ctx).Result()
	if err != nil {
		return "", now, err
	}
	text, err := r.client.Get(ctx, r.key).Result()
	if errors.Is(err, redis.Nil) {
		return "", now, nil
	}
	return document(text), now, err
}

func (r *onRedis) write(ctx context.Context, instead string, doc document, life time.Duration) (bool, error) {
	n, err := replace.Run(ctx, r.client, []string{r.key}, instead, string(doc), max(1, life.Milliseconds())).Int()
	return n == 1, err
}
