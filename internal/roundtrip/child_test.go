package roundtrip

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"example.com/sash"
	"example.com/sash/driver"
	"example.com/sash/goredisstore"
	"example.com/sash/httplimit"
)

// childEnv holds an instance: with it, the test binary is one more process that serves HTTP.
const childEnv = "SASH_ROUNDTRIP_CHILD"

// An instance is one of several processes that serve an API whose limits are on one Redis.
type instance struct {
	Addr   string
	Limits []sash.Limit
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// child serves until its standard input ends, with its parent at the latest. It prints its URL.
func child(text string) error {
	var i instance
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: i.Addr})
	defer client.Close()
	handler, err := limitedHandler(goredisstore.New(client, nil), i.Limits)
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = server.Close()
	}()
	fmt.Println("http://" + lis.Addr().String())
	if err := server.Serve(lis); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// atField is the field with the instant of the decision, in microseconds of the store's clock.
const atField = "Decided-At"

// A timed store writes the instant of its decision to the response header, which is in the context.
type timed struct{ driver.Store }

type headerKey struct{}

func (s timed) Decide(ctx context.Context, req driver.Request) (driver.Answer, error) {
	res, err := s.Store.Decide(ctx, req)
	if h, ok := ctx.Value(headerKey{}).(http.Header); ok && err == nil {
		h.Set(atField, strconv.FormatInt(res.At, 10))
	}
	return res, err
}

// limitedHandler serves behind httplimit, and reports the instant of each decision.
func limitedHandler(store driver.Store, limits []sash.Limit) (http.Handler, error) {
	limiter, err := sash.New(timed{store}, nil, limits...)
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.New(limiter, httplimit.Shared("client"), nil)
	if err != nil {
		return nil, err
	}
	inner := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), headerKey{}, w.Header())))
	}), nil
}

// start starts an instance and returns its URL. It ends with the test.
func (i instance) start(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}
