// Package watch reads the event stream of an admin port and shows it in a terminal.
package watch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"example.com/sash/service/internal/wire"
)

// ErrToken means that the service does not accept the token.
var ErrToken = errors.New("the service does not accept this token: it has another one, or it was started without one")

// idleTimeout is the time without an event after which a stream counts as broken. It has an event a second.
const idleTimeout = 10 * time.Second

// maxEvent is longer than any event: a thousand rules and thirty subjects.
const maxEvent = 4 << 20

// A Client reads from one admin port. It is safe for concurrent use.
type Client struct {
	// Admin is the URL of the port, such as http://127.0.0.1:6070.
	Admin string
	// Token is the admin token. Empty is none.
	Token string
}

// Watch calls f with every event and its JSON, until f returns false or the context ends. A stream that ends is an error.
func (c *Client) Watch(ctx context.Context, f func(wire.Event, []byte) (more bool)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	idle := time.AfterFunc(idleTimeout, func() { stop(fmt.Errorf("no event for %v", idleTimeout)) })
	defer idle.Stop()
	transport := http.DefaultTransport.(*http.Transport).Clone() // its own connection, which ends with the stream
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport} // no timeout, because the stream does not end
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Admin, "/")+"/admin/v1/events", nil)
	if err != nil {
		return err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no admin port answers at %s: is sash serve running there, and is that its --admin-addr? (%w)", c.Admin, unwrap(err))
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		return ErrToken
	case res.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%s examines no token from here for %s s: too many were wrong", c.Admin, res.Header.Get("Retry-After"))
	case res.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("%s has too many open streams: close a dashboard or another sash top, or pass the token", c.Admin)
	case res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream"):
		return fmt.Errorf("%s is no admin port of sash serve: it answers %s to /admin/v1/events", c.Admin, res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxEvent)
	for kind := ""; lines.Scan(); {
		idle.Reset(idleTimeout)
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			kind = name
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || kind != "state" {
			continue
		}
		var event wire.Event
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return fmt.Errorf("%s sent an event that cannot be read: %w", c.Admin, err)
		}
		if c.Token != "" && !event.Authenticated {
			return ErrToken
		}
		if !f(event, []byte(data)) {
			return nil
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%s: %w", c.Admin, cause)
	}
	return fmt.Errorf("%s ended the stream: %w", c.Admin, cmp.Or(lines.Err(), io.EOF))
}

// unwrap removes the URL, which the message already has.
func unwrap(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
