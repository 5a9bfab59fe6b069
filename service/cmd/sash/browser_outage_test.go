//go:build browser

package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// While Redis is away, the dashboard names it, the cause and since when, and shows what nobody counted and what nobody
// decided as such. The page of a subject has no number that was not read: it shows what Redis said last, dimmed and with its
// age, or this instance's share, or nothing. A page that gets no word from the service says since when its numbers stand.
func TestBrowserInAnOutage(t *testing.T) {
	redis := redistest.Start(t, "--requirepass", "a-password")
	p := serveDashboard(t, nil, `- {key: closed, limits: [20/1h]}
- {key: open, limits: [20/1h], on_unavailable: open}
- {key: local, limits: [20/1h], on_unavailable: local}
- {key: soft, limits: [20/1h], shadow_mode: true}
`, "--redis", "redis://:a-password@"+redis.Addr(), "--instances", "2")
	page := openTab(t, p.admin+"/dashboard")
	page.login()
	asks := func(times int, rules ...string) {
		t.Helper()
		for _, key := range rules {
			p.calls(t, times, key, "ann")
		}
	}
	type state struct {
		Status    string
		Uncounted int64
	}
	store := func() state {
		var now struct{ Store state }
		administer(t, http.DefaultClient, "GET", p.admin+"/admin/v1/state", "", &now)
		return now.Store
	}
	overview := func() { page.do(chromedp.Click(chromedp.CSS(`nav a[data-view=overview]`))) }
	share := func(rule, want string) {
		t.Helper()
		page.until(fmt.Sprintf(`[...document.querySelectorAll('#rules tbody tr')].find(r => r.dataset.key === 'demo demo.%s')?.querySelector('td.share').textContent.includes(%q)`, rule, want))
	}
	open := func(entry string) {
		t.Helper()
		page.text(fmt.Sprintf(`location.hash = '#/subject?domain=demo&entry=%s'`, entry))
		page.until(fmt.Sprintf(`document.getElementById('h-window').textContent === 'demo:%s'`, entry))
	}
	limit := func(want string) {
		t.Helper()
		page.until(fmt.Sprintf(`[...document.querySelectorAll('#limits tbody tr')].map(r => [...r.cells].map(c => c.textContent).join('|'))[0]?.startsWith(%q)`, want))
	}
	asks(7, "open", "local")
	overview()
	share("open", "0 % refused")
	open("open:ann")
	limit("20/1h|7 of 20|13|")
	page.until(`document.getElementById('known').hidden && document.getElementById('alert').hidden`)

	redis.Stop()
	servertest.Wait(t, "the service does not notice", func() bool { asks(1, "open"); return store().Status == "degraded" })
	const since = " accepts no connections (refused) since "
	page.says("known", "Not known: Redis at "+redis.Addr()+since, "The numbers below are what Redis said ", " ago, at ")
	limit("20/1h|7 of 20|13|–|–")
	page.until(`document.getElementById('limits').classList.contains('stale')`)
	asks(30, "closed", "open", "local", "soft")
	open("local:ann")
	page.says("known", "Redis at "+redis.Addr()+since, "This instance decides alone, over its share of each limit.")
	limit("20/1h|10 of 10, the share of 20|0|")
	open("open:bob")
	page.says("known", "No earlier answer about this subject is at hand.")
	limit("20/1h|not known|–|–|–")
	overview()
	page.says("alert", "Redis at "+redis.Addr()+since, fmt.Sprintf("%d requests went ahead uncounted since then.", store().Uncounted))
	// Banner, card and rows have one number.
	page.until(fmt.Sprintf(`[...document.querySelectorAll('#rules tbody tr')].reduce((n, r) => n + Number(r.cells[6].textContent), 0) === %d && document.getElementById('count-uncounted').textContent === '%[1]d'`, store().Uncounted))
	share("soft", "100.0 % uncounted")
	share("closed", "100.0 % no decision")
	share("local", "decided locally")
	share("open", " % uncounted, 0 % of the others refused")
	page.lacks("a-password")
	page.accessible("outage")

	redis.Restart() // without its data
	page.until(`document.getElementById('alert').hidden`)
	open("open:ann")
	limit("20/1h|0 of 20|20|free")
	page.deaf.Store(true) // connections are refused
	servertest.Check(t, p.stop(t))
	page.until(`document.getElementById('stale').textContent.startsWith('No word from this sash since ')`)
	page.until(`document.getElementById('overview').classList.contains('stale') && document.getElementById('found').classList.contains('stale')`)
}
