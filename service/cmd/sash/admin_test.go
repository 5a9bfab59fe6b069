package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

const adminToken = "a-token-of-enough-length"

// administer sends a request to an admin port and reads its answer; into may be nil.
func administer(t *testing.T, client *http.Client, method, url, body string, into any) int {
	t.Helper()
	res, text := sendBy(t, client, method, url, body, "Authorization", "Bearer "+adminToken)
	if into != nil && json.Unmarshal([]byte(text), into) != nil {
		t.Fatalf("%s %s: %d %s", method, url, res.StatusCode, text)
	}
	return res.StatusCode
}

// allow requests a unit of the built-in example's subject, and returns the status and the first limit or which refused.
func allow(t *testing.T, p *service, address string) (int, string) {
	t.Helper()
	res, text := send(t, http.MethodPost, p.url+"/v1/allow", subject("demo", "remote_address", address))
	answer := decode[struct {
		RefusedBy *string `json:"refused_by"`
		Limits    []struct{ Name string }
	}](t, text)
	say := ""
	if answer.RefusedBy != nil {
		say = *answer.RefusedBy + ", again after " + res.Header.Get("Retry-After")
	} else if len(answer.Limits) > 0 {
		say = answer.Limits[0].Name
	}
	return res.StatusCode, say
}

// One instance follows the bans and overrides of another, in both protocols, and both need no more rights on Redis than
// the doctor prints.
func TestBansAndOverridesHoldOnAllInstances(t *testing.T) {
	url := limitersURL(t, redistest.Start(t))
	a := serve(t, "--redis", url, "--admin-token-file", tempFile(t, "token", adminToken+"\n"))
	b := serveIn(t, []string{"SASH_ADMIN_TOKEN=" + adminToken}, append(freePorts, "--redis", url)...)
	administers := func(p *service, method, path, body string, into any) int {
		t.Helper()
		return administer(t, http.DefaultClient, method, p.admin+"/admin/v1/"+path, body, into)
	}

	const expires = `,"expires":"1h"`
	var made struct{ ID string }
	if status := administers(a, "POST", "bans", subject("demo", "remote_address", "192.0.2.9", expires), &made); status != 200 {
		t.Fatalf("the ban: %d", status)
	}
	if status, say := allow(t, a, "192.0.2.9"); status != 429 || !strings.HasPrefix(say, "ban, again after 3") {
		t.Errorf("at once, where it was made: %d %s", status, say)
	}
	servertest.Wait(t, "the other instance does not follow the ban", func() bool {
		_, say := allow(t, b, "192.0.2.9") // which the rule refuses too, after ten calls
		return strings.HasPrefix(say, "ban")
	})
	res, err := b.asks(t, "demo")("remote_address=192.0.2.9")
	if err != nil || res.OverallCode != pb.RateLimitResponse_OVER_LIMIT || res.Statuses[0].CurrentLimit.GetName() != "ban" ||
		res.Statuses[0].CurrentLimit.GetUnit() != 0 || res.Statuses[0].DurationUntilReset.AsDuration() < 55*time.Minute {
		t.Errorf("over gRPC: %v, %v", res, err)
	}
	if status, say := allow(t, b, "192.0.2.10"); status != 200 {
		t.Errorf("somebody else: %d %s", status, say)
	}
	if status := administers(b, "DELETE", "bans/"+made.ID, "", nil); status != 200 {
		t.Errorf("deleted where it was not made: %d", status)
	}
	if status := administers(b, "POST", "overrides", subject("demo", "remote_address", "192.0.2.9", expires, `,"limits":["1000/1h"]`), nil); status != 200 {
		t.Errorf("the override: %d", status)
	}
	servertest.Wait(t, "the first instance does not follow", func() bool {
		status, say := allow(t, a, "192.0.2.9")
		return status == 200 && say == "1000/1h"
	})
	c := serve(t, "--redis", url) // follows from its first answer on
	if status, say := allow(t, c, "192.0.2.9"); status != 200 || say != "1000/1h" {
		t.Errorf("a new instance: %d %s", status, say)
	}
	if status := administers(c, "GET", "overrides", "", nil); status != 403 {
		t.Errorf("an instance without a token: %d", status)
	}
	for _, p := range []*service{a, b, c} {
		if logs := p.stopped(t); strings.Contains(logs, "level=ERROR") || strings.Contains(logs, "level=WARN") || strings.Contains(logs, adminToken) {
			t.Errorf("logs: %s", logs)
		}
	}
	if logs := a.logs.String(); !strings.Contains(logs, "kind=ban subject=demo:remote_address:192.0.2.9") || !strings.Contains(logs, `by="token 1"`) {
		t.Errorf("what was done is not logged: %s", logs)
	}
}

// With an authority for clients, only clients with its certificate connect, and they need no token.
func TestAdminWithCertificates(t *testing.T) {
	ca := certify(t, "server", "operator")
	p := serve(t, "--admin-tls-cert", ca.file("server.pem"), "--admin-tls-key", ca.file("server.key"), "--admin-client-ca", ca.file("authority.pem"))
	if !strings.HasPrefix(p.admin, "https://") {
		t.Errorf("it says %s", p.admin)
	}
	for _, protocol := range []string{"h2", "http/1.1"} {
		var made struct{ By string }
		status := administer(t, ca.http(t, "operator", protocol), "POST", p.admin+"/admin/v1/bans", subject("demo", "remote_address", "192.0.2.9", `,"expires":"1h"`), &made)
		if status != 200 || made.By != "certificate operator" {
			t.Errorf("%s: %d, by %q", protocol, status, made.By)
		}
	}
	if status, _ := allow(t, p, "192.0.2.9"); status != 429 {
		t.Errorf("the ban does not hold: %d", status)
	}
	if res, err := ca.http(t, "", "h2").Get(p.admin + "/stats"); err == nil {
		_ = res.Body.Close()
		t.Errorf("without a certificate: %d", res.StatusCode)
	}
}
