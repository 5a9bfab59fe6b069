package redisclient

import (
	"strings"
	"testing"
	"time"
)

func TestURLs(t *testing.T) {
	for url, address := range map[string]string{
		"redis://localhost":                     "localhost:6379",
		"redis://user:secret@cache:7000/3":      "cache:7000",
		"rediss://cache:7000":                   "cache:7000",
		"unix:///run/redis.sock?db=1":           "/run/redis.sock",
		"127.0.0.1:6380":                        "127.0.0.1:6380",
		"[::1]:6380":                            "[::1]:6380",
		"redis://cache?read_timeout=3s&db=2":    "cache:6379",
		"redis://:p%40ss@cache:7000?protocol=2": "cache:7000",
	} {
		client, got, err := New(url)
		if err != nil || got != address {
			t.Errorf("%s: address %q, error %v; want %q", url, got, err, address)
			continue
		}
		opts := client.Options()
		want := time.Second
		if strings.Contains(url, "read_timeout") {
			want = 3 * time.Second
		}
		if opts.ReadTimeout != want || opts.WriteTimeout != time.Second || opts.DialTimeout != time.Second || !opts.ContextTimeoutEnabled {
			t.Errorf("%s: timeouts %v %v %v", url, opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout)
		}
		_ = client.Close()
	}
}

func TestErrorsSayTheFormsAndNeverThePassword(t *testing.T) {
	for _, url := range []string{"", "cache", "http://cache:6379", "redis://:secret@cache:port", "redis://:sec ret@cache:1", "redis://u:secret/x@cache:1", "u:secret@cache:6379:1", ":"} {
		_, _, err := New(url)
		if err == nil || !strings.Contains(err.Error(), "redis://") {
			t.Errorf("%q: %v", url, err)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec ret") {
			t.Errorf("%q: the password is in %v", url, err)
		}
	}
}
