//go:build browser

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"example.com/sash/internal/redistest"
)

// serveDashboard starts a service with rules, or the example, and an admin token.
func serveDashboard(t *testing.T, env []string, rules string, args ...string) *service {
	t.Helper()
	args = append(args, "--admin-token-file", tempFile(t, "token", adminToken))
	if rules != "" {
		args = append(args, "--config", tempFile(t, "rules.yaml", "domain: demo\ndescriptors:\n"+rules))
	}
	return serveIn(t, env, append(freePorts, args...)...)
}

// calls requests units of a subject, some times.
func (p *service) calls(t *testing.T, times int, key, value string, more ...string) {
	t.Helper()
	for range times {
		post(t, p.url+"/v1/allow", subject("demo", key, value, more...))
	}
}

// The dashboard works by keyboard: a user logs in, opens a subject, and sees its numbers.
func TestBrowserDashboard(t *testing.T) {
	p := serveDashboard(t, nil, "")
	for i := range 40 {
		p.calls(t, 1, "remote_address", fmt.Sprintf("192.0.2.%d", 1+i%3))
	}
	page := openTab(t, p.admin+"/dashboard")
	page.until(`document.getElementById('connection').textContent === 'live'`)

	// Without the token the page shows counts and no subjects.
	page.until(`document.querySelectorAll('#rules tbody tr').length === 1`)
	page.lacks("192.0.2.")

	page.login()
	page.find("remote_address", "192.0.2.1")
	page.until(`document.getElementById('h-window').textContent === 'demo:remote_address:192.0.2.1'`)
	for i, limit := range []string{"10/1m|10 of 10|0", "60/1h|10 of 60|50"} {
		page.until(fmt.Sprintf(`[...document.querySelectorAll('#limits tbody tr')[%d].cells].slice(0, 3).map(c => c.textContent).join('|') === %q`, i, limit))
	}
	page.until(`!document.getElementById('logout').hidden`)

	page.do(chromedp.Click(chromedp.CSS(`nav a[data-view=overview]`)))
	for by, want := range map[string]string{
		"units":   "demo:remote_address:192.0.2.1|14 demo:remote_address:192.0.2.2|13 demo:remote_address:192.0.2.3|13",
		"refused": "demo:remote_address:192.0.2.1|4 demo:remote_address:192.0.2.2|3 demo:remote_address:192.0.2.3|3",
	} {
		page.until(fmt.Sprintf(`[...document.querySelectorAll('#top-%s tbody tr')].map(r => r.cells[0].textContent + '|' + r.cells[1].textContent).toSorted().join(' ') === %q`, by, want))
	}
	page.until(`[...document.querySelectorAll('#tiles > div, #legend li')].filter((e) => !e.hidden).map((e) => e.dataset.outcome).join(' ') === 'allowed refused allowed refused'`) // all that happened
	page.until(`document.getElementById('count-allowed').textContent + ' ' + document.getElementById('count-refused').textContent === '30 10'`)
	page.accessible("overview")
	page.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile)) // it fits a phone
	page.until(`document.documentElement.scrollWidth <= 360`)
	page.do(chromedp.Click(chromedp.CSS(`#top-units a`)))
	page.until(`document.querySelectorAll('#limits tbody tr').length > 0 && document.documentElement.scrollWidth <= 360`)
	page.accessible("subject")
}

// The overview shows what a candidate would refuse, rules without requests, and how long Redis takes; the address of a
// subject's page opens it again.
func TestBrowserDashboardShowsCandidates(t *testing.T) {
	p := serveDashboard(t, nil, "  - {key: remote_address, limits: [20/1h], candidate: {limits: [5/1h]}}\n  - {key: never, limits: [7/1h]}\n",
		"--redis", redistest.Start(t).Addr(), "--budget", "5s")
	p.calls(t, 23, "remote_address", "192.0.2.7")
	page := openTab(t, p.admin+"/dashboard")
	page.until(`document.querySelector('#rules .tried')?.textContent.includes('18 of 23 so far')`)
	page.until(`document.getElementById('count-shadow').textContent === '15' && document.querySelector('#rules tbody tr').cells[8].textContent === '15'`) // and three were refused
	page.text(`(document.querySelector('#idle').open = true, '')`)
	page.until(`document.querySelectorAll('#idle tbody tr').length === 1 && document.querySelector('#idle tbody tr').textContent.startsWith('demo.never')`)
	p.calls(t, 20, "remote_address", "192.0.2.8") // the page knows what it has seen itself
	page.until(`[...document.querySelectorAll('#store > div')].some((d) => /^Redis decideshalf within [0-9.]+ ms, 99 % within /.test(d.textContent))`)
	page.text(`(() => {
		const box = document.getElementById('flow').getBoundingClientRect();
		document.getElementById('flow').dispatchEvent(new PointerEvent('pointermove', { clientX: box.right - 1, clientY: box.top + 5, bubbles: true }));
		return '';
	})()`)
	page.until(`!document.getElementById('flow-tip').hidden && /^\d\d:\d\d:\d\d/.test(document.getElementById('flow-tip').textContent)`)

	page.login()
	page.find("remote_address", "192.0.2.7")
	page.until(`document.querySelector('#limits tbody tr')?.cells[1].textContent === '20 of 20'`)
	address := page.text(`location.href`)
	page.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address)) // the session is a cookie of this browser
	page.until(`document.getElementById('h-window').textContent.includes('192.0.2.7')`)
}

// The overview shows how long until the last request of a rule starts that waits; the page of a
// blocked subject says until when the block lasts, and takes no refusal for use.
func TestBrowserQueueAndBlock(t *testing.T) {
	p := serveDashboard(t, nil, "- {key: remote_address, limits: [10/1m], max_wait: 10m}\n- {key: user, limits: [3/1h], block: {refusals: 1, for: 10m}}\n")
	p.calls(t, 25, "remote_address", "192.0.2.1", `,"wait_up_to":600`)
	p.calls(t, 1, "user", "ann")
	p.calls(t, 1, "user", "ann", `,"cost":3`) // refused, with two units left
	page := openTab(t, p.admin+"/dashboard")
	page.until(`[...document.querySelectorAll('#rules tbody tr')].some((r) => /^up to 1 min [0-9]+ s$|^up to 2 min 00 s$/.test(r.cells[3]?.textContent))`)
	page.login()
	page.find("user", "ann")
	page.until(`/^blocked until .+: refused too often$/.test(document.querySelector('#badges [data-how=bad]')?.textContent)`)
	page.until(`document.querySelector('#limits tbody tr').cells[1].textContent === 'not known'`)
}

// The dashboard knows a subject with a secret value by its HMAC: the lists link to it, and neither the page nor its
// address keeps the value that an operator typed.
func TestBrowserDashboardKeepsSecrets(t *testing.T) {
	const secret = "sk-4242424242424242"
	p := serveDashboard(t, []string{"SASH_SECRET_KEYS=" + strings.Repeat("k", 32)}, "- {key: api-key, secret: true, limits: [20/1h]}\n")
	p.calls(t, 7, "api-key", secret)
	page := openTab(t, p.admin+"/dashboard")
	page.login()
	page.find("api-key", secret)
	const stands = `document.querySelector('#limits tbody tr')?.cells[1].textContent === '7 of 20'`
	page.until(stands)
	named := page.text(`document.getElementById('h-window').textContent`)
	all := page.text(`decodeURIComponent(location.href) + ' ' + document.documentElement.outerHTML + ' ' + [...document.querySelectorAll('input')].map(i => i.value).join(' ')`)
	if !strings.HasPrefix(named, "demo:api-key:") || strings.Contains(all, secret) || !strings.Contains(all,
		strings.TrimPrefix(named, "demo:")) {
		t.Errorf("the page of %q keeps the secret, or has not its HMAC", named)
	}
	page.do(chromedp.Click(chromedp.CSS(`nav a[data-view=overview]`)))
	page.do(chromedp.Click(chromedp.CSS(`#top-units a`)))
	page.until(`document.getElementById('h-window').textContent === '` + named + `' && ` + stands)
}
