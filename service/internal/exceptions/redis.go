package exceptions

import (
	"cmp"
	"context"
	_ "embed"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"example.com/sash/redisstore"
	"example.com/sash/service/internal/redisclient"
)

// onRedis keeps the document in one key. It needs no permissions beyond those of the scripts that decide.
type onRedis struct {
	client *redisclient.Client
	key    string
}

//go:embed replace.lua
var replaceText string

// newOnRedis returns a keeper on a client, which the caller keeps owning. An empty prefix means redisstore.DefaultPrefix.
func newOnRedis(client *redisclient.Client, prefix string) *onRedis {
	prefix = cmp.Or(prefix, redisstore.DefaultPrefix)
	return &onRedis{client, prefix + "exceptions"}
}

func (r *onRedis) version(ctx context.Context) (string, error) {
	reply, err := r.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Getrange().Key(r.key).Start(0).End(versionLength - 1).Build()
	})
	if err != nil {
		return "", err
	}
	return reply.ToString()
}

func (r *onRedis) read(ctx context.Context) (document, time.Time, error) {
	now, err := r.client.Time(ctx)
	if err != nil {
		return "", now, err
	}
	reply, err := r.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed { return b.Get().Key(r.key).Build() })
	if rueidis.IsRedisNil(err) {
		return "", now, nil
	}
	if err != nil {
		return "", now, err
	}
	text, err := reply.ToString()
	return document(text), now, err
}

func (r *onRedis) write(ctx context.Context, instead string, doc document, life time.Duration) (bool, error) {
	reply, err := r.client.Do(ctx, func(b rueidis.Builder) rueidis.Completed {
		return b.Eval().Script(replaceText).Numkeys(1).Key(r.key).Arg(instead, string(doc), strconv.FormatInt(max(1, life.Milliseconds()), 10)).Build()
	})
	if err != nil {
		return false, err
	}
	n, err := reply.AsInt64()
	return n == 1, err
}
