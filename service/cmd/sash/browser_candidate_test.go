//go:build browser

package main

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"example.com/sash/internal/redistest"
)

// The overview shows what a candidate would refuse, rules without requests, and how long Redis takes; a subject's page
// shows the calls that were refused, and its address opens it again.
func TestBrowserDashboardShowsCandidatesAndRefusedCalls(t *testing.T) {
	rules := tempFile(t, "rules.yaml", `domain: demo
descriptors:
  - {key: remote_address, limits: [20/1h], candidate: {limits: [5/1h]}}
  - {key: never, limits: [7/1h]}
`)
	p := serve(t, "--config", rules, "--redis", redistest.Start(t).Addr(), "--admin-token-file", adminTokenFile(t), "--budget", "5s")
	for range 23 {
		allow(t, p, "192.0.2.7")
	}
	page := openTab(t, p.admin+"/dashboard")
	page.until(`document.querySelector('#rules .tried')?.textContent.includes('18 of 23 so far')`)
	page.text(`(document.querySelector('#idle').open = true, '')`)
	page.until(`document.querySelector('#idle tbody tr')?.textContent.startsWith('demo.never')`)
	if rows := page.text(`String(document.querySelectorAll('#idle tbody tr').length)`); rows != "1" {
		t.Errorf("%s rules without requests", rows)
	}
	for range 20 { // the page knows what it has seen itself
		allow(t, p, "192.0.2.8")
	}
	page.until(`[...document.querySelectorAll('#store > div')].some((d) => /^Redis decideshalf within [0-9.]+ ms, 99 % within /.test(d.textContent))`)
	if labels := page.text(`[...document.querySelectorAll('#levels span')].map((s) => s.textContent).join(' ')`); len(strings.Split(labels, "/s")) != 5 {
		t.Errorf("the labels of the axis are %q", labels)
	}
	page.text(`(() => {
		const box = document.getElementById('flow').getBoundingClientRect();
		document.getElementById('flow').dispatchEvent(new PointerEvent('pointermove', { clientX: box.right - 1, clientY: box.top + 5, bubbles: true }));
		return '';
	})()`)
	page.until(`!document.getElementById('flow-tip').hidden && /^\d\d:\d\d:\d\d/.test(document.getElementById('flow-tip').textContent)`)
	page.shoot("candidate")

	page.login()
	page.find("remote_address", "192.0.2.7")
	page.until(`document.querySelectorAll('#axis .refusals path').length === 3 && document.querySelectorAll('#axis .marks rect').length === 20`)
	page.until(`document.getElementById('caption').textContent.includes('the last 3 that this instance knows of')`)
	page.shoot("refused")
	address := page.text(`location.href`)
	page.do(chromedp.Navigate("about:blank"), chromedp.Navigate(address)) // the session is a cookie of this browser
	page.until(`document.querySelectorAll('#axis .refusals path').length === 3`)
	if said := page.text(`document.getElementById('h-window').textContent`); !strings.Contains(said, "192.0.2.7") {
		t.Errorf("the address %s shows %q", address, said)
	}
	if said := page.text(`document.querySelector('#axis .refusals title').textContent`); !strings.HasPrefix(said, "1 refused at ") {
		t.Errorf("a refused call says %q", said)
	}
}
