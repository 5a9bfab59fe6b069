//go:build browser

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A page of another origin, in a real browser, tries all that it may send without a preflight request. It does not
// take a unit from a user of the machine it runs on.
func TestAPageInChromiumChargesNobody(t *testing.T) {
	p := serve(t)
	const body = `{"domain":"demo","entries":[{"key":"remote_address","value":"192.0.2.7"}],"cost":10}`
	page := filepath.Join(t.TempDir(), "page.html")
	text := fmt.Sprintf(`<!doctype html><script>
		const sash = %[1]q, envoy = '{"domain":"demo","descriptors":[{"entries":[{"key":"remote_address","value":"192.0.2.7"}]}],"hitsAddend":10}';
		for (const type of ["text/plain", "application/x-www-form-urlencoded"])
			for (const [path, body] of [["/v1/allow", %[2]q], ["/v1/reserve", %[2]q], ["/json", envoy]]) {
				const request = new XMLHttpRequest();
				request.open("POST", sash + path, false);
				request.setRequestHeader("Content-Type", type);
				try { request.send(body); } catch {} // the page may not read the answer
			}
		document.title = "tried";
		</script><img src="%[1]s/v1/forward-auth?domain=demo&amp;descriptor=remote_address%%3D192.0.2.7">`, p.url, body)
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dom, _ := browse(t, page, "--dump-dom")
	status, said := post(t, p.url+"/v1/allow", body)
	if !strings.Contains(dom, "<title>tried</title>") || status != 200 {
		t.Errorf("after the page's attempts the user is answered %d %v\n%s", status, said, dom)
	}
}
