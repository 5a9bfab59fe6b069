//go:build browser

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The dashboard knows a subject with a secret value by its HMAC: the lists link to it, and neither the page nor its
// address keeps the value that an operator typed.
func TestBrowserDashboardKeepsSecrets(t *testing.T) {
	const secret = "sk-4242424242424242"
	rules := filepath.Join(t.TempDir(), "limits.yaml")
	put(t, rules, "domain: demo\ndescriptors:\n- {key: api-key, secret: true, limits: [20/1h]}\n")
	p := serveIn(t, []string{"SASH_SECRET_KEYS=" + strings.Repeat("k", 32)}, append(freePorts, "--config", rules, "--admin-token-file", adminTokenFile(t))...)
	for range 7 {
		post(t, p.url+"/v1/allow", `{"domain":"demo","entries":[{"key":"api-key","value":"`+secret+`"}]}`)
	}
	page := openTab(t, p.admin+"/dashboard")
	page.login()
	page.find("api-key", secret)
	const stands = `document.querySelector('#limits tbody tr')?.cells[1].textContent === '7 of 20'`
	page.until(stands)
	named := page.text(`document.getElementById('h-window').textContent`)
	if !strings.HasPrefix(named, "demo:api-key:") {
		t.Errorf("the subject is %q", named)
	}
	all := page.text(`decodeURIComponent(location.href) + ' ' + document.documentElement.outerHTML + ' ' + [...document.querySelectorAll('input')].map(i => i.value).join(' ')`)
	if strings.Contains(all, secret) || !strings.Contains(all, strings.TrimPrefix(named, "demo:")) {
		t.Error("the page keeps the secret, or has not its HMAC")
	}
	page.do(chromedp.Click(chromedp.CSS(`nav a[data-view=overview]`)))
	page.do(chromedp.Click(chromedp.CSS(`#top-units a`)))
	page.until(`document.getElementById('h-window').textContent === '` + named + `' && ` + stands)
	page.shoot("secret")
}
