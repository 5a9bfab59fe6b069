package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.com/sash/internal/redistest"
)

// A token is settled once, to fewer or more units, by the command that charged the keys of its line, all or none.
func TestReservationsAreSettledOnce(t *testing.T) {
	url := "redis://" + redistest.Start(t).Addr()
	const both = "--limit 100/1h tokens --cost 40 AND --limit 3/1h requests"
	aToken := regexp.MustCompile(`^[\w-]+\.[\w-]{43}\n$`)
	var token string
	for _, step := range []struct {
		args     string
		code     int
		out, err string // what each begins with; TOKEN is one that settle is given afterwards
	}{
		{"reserve --limit 100/1h tokens --cost 60", 0, "TOKEN", ""},
		{"reserve --limit 100/1h tokens --cost 60", 1, "", "refused by 100/1h: 40 units left, retry after 59m5"},
		{"settle TOKEN 10", 0, "settled\n", ""},
		{"settle TOKEN 0", 0, "settled\n", ""},
		{"peek --limit 100/1h tokens", 0, "allowed: 90 units left\n", ""},

		{"reserve " + both, 0, "TOKEN", ""},
		{"peek --limit 3/1h requests", 0, "allowed: 2 units left\n", ""},
		{"settle TOKEN 45", 2, "", "sash: invalid cost: the reservation has 2 parts"},
		{"settle TOKEN 45 1 --json", 0, `{"settled":true}`, ""},
		{"peek --limit 100/1h tokens", 0, "allowed: 45 units left\n", ""},
		{"reserve " + both, 0, "TOKEN", ""},
		{"reserve " + both, 1, "", "refused by tokens 100/1h: 1 unit left, retry after 59m"},
		{"allow " + both + " --json", 1, `{"allowed":false,"remaining":1,"retry_after":35`, ""},
		{"settle TOKEN 0", 0, "settled\n", ""},
		{"peek --limit 3/1h requests", 0, "allowed: 2 units left\n", ""},
		{"allow " + both, 0, "allowed: 1 unit left (5 of tokens 100/1h, 1 of requests 3/1h)\n", ""},
		{"peek --limit 3/1h requests", 0, "allowed: 1 unit left\n", ""},

		{"reserve --limit 9/1h k --cost 4 --algorithm gcra --prefix app", 0, "TOKEN", ""},
		{"settle TOKEN 1", 0, "settled\n", ""},
		{"peek --limit 9/1h k --algorithm gcra --prefix app", 0, "allowed: 8 units left\n", ""},
		{"reserve --limit 1/700ms booked", 0, "TOKEN", ""},
		{"reserve --limit 1/700ms booked --wait 30s", 0, "TOKEN", ""},
		{"settle TOKEN 0", 0, "settled\n", ""},
		{"allow --limit 1/700ms booked", 0, "allowed", ""},
		{"allow --limit 5/1h -- AND", 0, "allowed: 4 units left\n", ""},

		{"reserve --limit 100/1h last --cost 60", 0, "TOKEN", ""},
		{"settle --redis " + url + "/1 TOKEN 5", 2, "", "sash: the TOKEN is not one of sash reserve for redis at "},
		{"settle TOKENx 5", 2, "", "sash: the TOKEN is not one of sash reserve"},
		{"settle EMPTY 5", 2, "", "sash: the TOKEN is not one of sash reserve"},
		{"settle garbage 5", 2, "", "sash: the TOKEN is not one of sash reserve"},
		{"settle TOKEN", 2, "", "sash: 1 arguments instead of a TOKEN and the units USED"},
		{"settle TOKEN EMPTY", 2, "", `sash: "" is no number of units`},
		{"settle TOKEN null", 2, "", `sash: "null" is no number of units`},
		{"settle TOKEN 9007199254740993", 2, "", "sash: invalid cost: "},
		{"settle --redis redis://127.0.0.1:1 TOKEN 5", 2, "", "sash: the TOKEN is not one of sash reserve for redis at 127.0.0.1:1"},
		{"allow --limit 5/1h a AND --limit 5/1h", 2, "", "sash: 0 arguments instead of a KEY"},
		{"allow --limit 5/1h a AND b", 2, "", "sash: --limit is missing"},
		{"allow --limit 5/1h a AND --limit 5/1h a", 2, "", "sash: invalid key: the subject a appears twice"},
		{"--json AND allow --limit 5/1h a", 2, `{"error":"0 arguments instead of a KEY`, ""},
		{"peek --limit 5/1h a AND --limit 5/1h b", 2, "", "sash: 3 arguments instead of a KEY"},
		{"peek --limit 100/1h last", 0, "allowed: 40 units left\n", ""},
	} {
		args := strings.Fields(step.args)
		for i := range args {
			args[i] = strings.NewReplacer("TOKEN", token, "EMPTY", "").Replace(args[i])
		}
		code, out, err := sash(t, []string{"SASH_REDIS=" + url}, args...)
		if step.out == "TOKEN" && aToken.MatchString(out) {
			token, step.out = strings.TrimSpace(out), out
		}
		if code != step.code || !strings.HasPrefix(out, step.out) || !strings.HasPrefix(err, step.err) || (err == "") != (step.err == "") {
			t.Errorf("%s: exit %d, %q, %q; want %d, %q, %q", step.args, code, out, err, step.code, step.out, step.err)
		}
	}
}

// The script in README.md reserves, and settles what its call has used.
func TestReservationOfTheReadme(t *testing.T) {
	text := regexp.MustCompile(`(?m)^token=\$\(sash reserve(?s:.*?)\n\x60`).FindString(string(readFile(t, repository+"/README.md")))
	redis := redistest.Start(t).Addr()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `ask_model() { echo '{"usage":{"total_tokens":3120}}'; }; jq() { grep -o '[0-9]*'; }; `+
		strings.TrimSuffix(text, "`"))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "SASH_REDIS="+redis)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "settled\n" {
		t.Fatalf("%v: %s\n%s", err, text, out)
	}
	for args, want := range map[string]string{"100000/1m tokens": "96880", "500/1m requests": "499"} {
		if _, out, err := sash(t, nil, append([]string{"peek", "--redis", redis, "--limit"}, strings.Fields(args)...)...); out != "allowed: "+want+" units left\n" {
			t.Errorf("%s: %s%s", args, out, err)
		}
	}
}
