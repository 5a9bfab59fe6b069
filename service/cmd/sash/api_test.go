package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// post sends JSON and returns the status and the answer.
func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var said map[string]any
	if err := json.NewDecoder(res.Body).Decode(&said); err != nil {
		t.Fatalf("%s: %d, %v", url, res.StatusCode, err)
	}
	return res.StatusCode, said
}

// Instances on one Redis with one secret settle each other's reservations, and others do not. Only the admin
// address resets.
func TestAReservationIsSettledByAnotherInstance(t *testing.T) {
	redis := redistest.Start(t).Addr()
	secret := []string{"SASH_TOKEN_KEY=" + strings.Repeat("s", 32), "SASH_ADMIN_TOKEN=" + strings.Repeat("a", 32)}
	start := func(env []string) *service {
		return serveIn(t, env, append(freePorts, "--redis", redis)...)
	}
	here, there, stranger := start(secret), start(secret), start(nil)
	const subject = `{"domain":"demo","entries":[{"key":"operation","value":"search"}]`
	left := func() any {
		_, said := post(t, there.url+"/v1/peek", subject+"}")
		return said["remaining"]
	}

	status, said := post(t, here.url+"/v1/reserve", subject+`,"cost":400}`)
	if status != 200 || said["remaining"] != 9100.0 {
		t.Fatalf("reserved: %d %v", status, said)
	}
	settle := `{"token":"` + said["token"].(string) + `","used":300}`
	if status, said := post(t, stranger.url+"/v1/settle", settle); status != 403 || left() != 9100.0 {
		t.Errorf("by an instance with another secret: %d %v, %v left", status, said, left())
	}
	if status, said := post(t, there.url+"/v1/settle", settle); status != 200 || left() != 9200.0 {
		t.Errorf("by another instance: %d %v, %v left", status, said, left())
	}
	if status, said := post(t, here.url+"/v1/settle", settle); status != 200 || left() != 9200.0 {
		t.Errorf("again: %d %v, %v left", status, said, left())
	}
	if status, said := post(t, here.url+"/admin/v1/reset", subject+"}"); status != 404 || left() != 9200.0 {
		t.Errorf("reset by anyone: %d %v, %v left", status, said, left())
	}
	if status, said := post(t, here.admin+"/admin/v1/reset", subject+"}"); status != 401 || left() != 9200.0 {
		t.Errorf("reset without the token: %d %v, %v left", status, said, left())
	}
	if err := stranger.stop(t); err != nil {
		t.Error(err)
	}
	if logs := stranger.logs.String(); !strings.Contains(logs, "one key in SASH_TOKEN_KEY") {
		t.Errorf("it does not say that its reservations are its own: %s", logs)
	}
	code, _, err := sash(t, []string{"SASH_TOKEN_KEY=guessable"}, "serve", "--addr", "127.0.0.1:0")
	if code != 2 || !strings.Contains(err, "SASH_TOKEN_KEY has a key of 9 bytes") || strings.Contains(err, "guessable") {
		t.Errorf("a short secret: exit %d, %s", code, err)
	}
}

// Instances change to a new secret one by one, in three rounds: first all know both, then the new one makes tokens, then
// the old one goes. A reservation of any round is settled by an instance of that round and of the next.
func TestAFleetChangesItsSecretWithoutLosingAReservation(t *testing.T) {
	redis := redistest.Start(t).Addr()
	before, after := strings.Repeat("o", 32), strings.Repeat("n", 32)
	var rounds []*service
	for _, keys := range []string{before, before + "," + after, after + "," + before, after} {
		rounds = append(rounds, serveIn(t, []string{"SASH_TOKEN_KEY=" + keys}, append(freePorts, "--redis", redis)...))
	}
	const subject = `{"domain":"demo","entries":[{"key":"operation","value":"search"}]`
	for by, p := range rounds {
		for at, other := range rounds {
			status, said := post(t, p.url+"/v1/reserve", subject+`,"cost":10}`)
			if status != 200 {
				t.Fatalf("reserved: %d %v", status, said)
			}
			want := 200
			if by < 2 && at == 3 || by >= 2 && at == 0 { // the key that makes the token is gone, or not there yet
				want = 403
			}
			if status, said := post(t, other.url+"/v1/cancel", `{"token":"`+said["token"].(string)+`"}`); status != want {
				t.Errorf("of round %d, settled in round %d: %d %v, want %d", by, at, status, said, want)
			}
		}
	}
}

// The curl lines of README.md do what it says, one after the other.
func TestTheCurlLinesOfTheReadme(t *testing.T) {
	text := readFile(t, filepath.Join(repository, "README.md"))
	p, token := serve(t), ""
	lines := regexp.MustCompile(`(?m)^curl -d '([^']*)' localhost:8080(\S+) +# (.*)$`).FindAllStringSubmatch(string(text), -1)
	for _, line := range lines {
		status, said := post(t, p.url+line[2], strings.ReplaceAll(line[1], "TOKEN", token))
		if status != 200 {
			t.Errorf("%s: %d %v", line[0], status, said)
		}
		if reserved, ok := said["token"].(string); ok {
			token = reserved
		}
		answer, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(strings.TrimPrefix(line[3], "{…,"), "TOKEN", token)
		if !strings.Contains(string(answer), strings.TrimSuffix(want, "}")) {
			t.Errorf("%s answers %s", line[0], answer)
		}
	}
	if len(lines) != 2 || token == "" {
		t.Errorf("%d lines, token %q", len(lines), token)
	}
}
