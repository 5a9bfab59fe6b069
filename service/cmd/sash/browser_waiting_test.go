//go:build browser

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The overview shows how many requests of a rule wait, and how long until the last of them starts; the page of the
// subject draws them ahead of now.
func TestBrowserQueueOfARule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(adminToken), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--admin-token-file", file)
	for range 25 { // of a limit of ten a minute
		body := `{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.1"}],"wait_up_to":600}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/allow", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	page := openTab(t, p.admin+"/dashboard")
	page.until(`/^15, up to 1 min [0-9]+ s$|^15, up to 2 min 00 s$/.test(document.querySelector('#rules tbody tr')?.cells[3].textContent)`)
	page.shoot("waiting")
	page.shortcut('/')
	page.until(`document.activeElement?.name === 'token'`)
	page.press(adminToken + "\r")
	page.until(`document.activeElement?.classList.contains('key') && document.getElementById('locked').hidden`)
	page.press("remote_address\t192.0.2.1\r")
	page.until(`!document.getElementById('found').hidden`)
	page.until(`document.querySelectorAll('#axis .marks rect').length > 0`)
	page.until(`document.querySelectorAll('#axis .marks .booked').length > 0`)
	page.shoot("subject")
}
