//go:build browser

package main

import (
	"net/http"
	"path/filepath"
	"testing"
)

// The overview shows how many requests of a rule wait, and how long until the last of them starts; the page of the
// subject draws them ahead of now.
func TestBrowserQueueOfARule(t *testing.T) {
	p := serve(t, "--admin-token-file", adminTokenFile(t))
	for range 25 { // of a limit of ten a minute
		status, answer := post(t, p.url+"/v1/allow", `{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.1"}],"wait_up_to":600}`)
		if status != http.StatusOK {
			t.Fatal(status, answer)
		}
	}
	page := openTab(t, p.admin+"/dashboard")
	page.until(`/^15, up to 1 min [0-9]+ s$|^15, up to 2 min 00 s$/.test(document.querySelector('#rules tbody tr')?.cells[3].textContent)`)
	page.shoot("waiting")
	page.login()
	page.find("remote_address", "192.0.2.1")
	page.until(`document.querySelectorAll('#axis .marks .booked').length > 0`)
	page.shoot("subject")
}

// The page of a blocked subject says until when the block lasts, and takes no refusal for use.
func TestBrowserBlockOfASubject(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, rules, "domain: demo\ndescriptors:\n- {key: user, limits: [3/1h], block: {refusals: 1, for: 10m}}\n")
	p := serve(t, "--config", rules, "--admin-token-file", adminTokenFile(t))
	for _, cost := range []string{"1", "3"} { // the second is refused, with two units left
		post(t, p.url+"/v1/allow", `{"domain":"demo","entries":[{"key":"user","value":"ann"}],"cost":`+cost+`}`)
	}
	page := openTab(t, p.admin+"/dashboard")
	page.login()
	page.find("user", "ann")
	page.until(`/^blocked until .+: refused too often$/.test(document.querySelector('#badges [data-how=bad]')?.textContent)`)
	page.until(`document.querySelector('#limits tbody tr').cells[1].textContent === 'not known'`)
	page.shoot("blocked")
}
