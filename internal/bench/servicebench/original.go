package servicebench

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// StartOriginal starts the binary of Envoy's own rate limit service that RLS_BIN names, on a Redis and on the rules beside
// the binary of sash, and returns its version, too. The caller stops it.
func StartOriginal(sash, redis string) (s *Service, version string, err error) {
	binary := os.Getenv(originalVariable)
	if binary == "" {
		return nil, "", errors.New(originalVariable + " names no binary of it")
	}
	if version, err = versionOf(binary); err != nil {
		return nil, "", err
	}
	s, err = serveOriginal(binary, filepath.Dir(sash), redis, 0)
	return s, version, err
}

// serveOriginal starts Envoy's own rate limit service with its defaults, on a Redis and on the rules in the directory.
// It refuses from a local cache of so many bytes; 0 is its default, none.
func serveOriginal(binary, dir, redis string, cache int) (*Service, error) {
	web, rpc, debug, err := freePorts()
	if err != nil {
		return nil, err
	}
	s := &Service{name: "Envoy's rate limit service", cmd: exec.Command(binary), ended: make(chan error, 1)}
	s.URL, s.GRPC = "http://127.0.0.1:"+web, "127.0.0.1:"+rpc
	s.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"HOST=127.0.0.1", "PORT=" + web, "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + rpc, "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + debug,
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "LOCAL_CACHE_SIZE_IN_BYTES=" + strconv.Itoa(cache),
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
	}
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("servicebench: %s: %w", originalVariable, err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	if err := s.answers(); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// answers waits until the service is healthy.
func (s *Service) answers() error {
	client := http.Client{Timeout: time.Second}
	for range 200 {
		if res, err := client.Get(s.URL + "/healthcheck"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("servicebench: %s is not healthy after ten seconds", s.name)
}

// freePorts returns three ports of loopback that were free. Envoy's service takes port 0 and does not say which it got.
func freePorts() (web, rpc, debug string, err error) {
	for _, port := range []*string{&web, &rpc, &debug} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", "", err
		}
		defer listener.Close()
		if _, *port, err = net.SplitHostPort(listener.Addr().String()); err != nil {
			return "", "", "", err
		}
	}
	return web, rpc, debug, nil
}
