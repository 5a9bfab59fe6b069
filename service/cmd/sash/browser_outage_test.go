//go:build browser

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"example.com/sash/internal/redistest"
	"example.com/sash/service/internal/servertest"
)

// watched is a service on a real Redis, with a rule of each failure mode and a page that is logged in.
type watched struct {
	*service
	t     *testing.T
	redis *redistest.Server
	page  *tab
}

func watchAnOutage(t *testing.T) *watched {
	w := &watched{t: t, redis: redistest.Start(t, "--requirepass", "a-password")}
	w.service = serveDashboard(t, nil, `- {key: closed, limits: [20/1h]}
- {key: open, limits: [20/1h], on_unavailable: open}
- {key: local, limits: [20/1h], on_unavailable: local}
`, "--redis", "redis://:a-password@"+w.redis.Addr(), "--instances", "2")
	w.page = openTab(t, w.admin+"/dashboard")
	w.page.login()
	w.page.do(chromedp.Click(chromedp.CSS(`nav a[data-view=overview]`)))
	return w
}

// asks requests a unit of a subject of each rule, some times.
func (w *watched) asks(times int, rules ...string) {
	w.t.Helper()
	for range times {
		for _, key := range rules {
			w.calls(w.t, 1, key, "ann")
		}
	}
}

// fails asks for units until the service has noticed that Redis is away.
func (w *watched) fails() {
	w.t.Helper()
	servertest.Wait(w.t, "the service does not notice", func() bool {
		w.asks(1, "open")
		return w.store().Status == "degraded"
	})
}

// store returns what the service says of its store.
func (w *watched) store() (now struct {
	Status    string
	Uncounted int64
}) {
	w.t.Helper()
	administer(w.t, http.DefaultClient, "GET", w.admin+"/admin/v1/store", "", &now)
	return now
}

// share is a script for the share that the overview shows of a rule.
func share(rule string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#rules tbody tr')].find(r => r.dataset.key === 'demo demo.%s')?.querySelector('td.share').textContent`, rule)
}

// While Redis is killed or stopped, the dashboard names it, the cause and since when, and shows what nobody counted and
// what nobody decided as such.
func TestBrowserOverviewOfAnOutage(t *testing.T) {
	w := watchAnOutage(t)
	w.asks(3, "open", "local")
	w.page.until(`document.getElementById('count-allowed').textContent === '6' && document.getElementById('alert').hidden`)
	w.page.until(share("open") + ` === '0 % refused'`)

	w.redis.Stop() // SIGKILL
	w.fails()
	w.asks(30, "closed", "open", "local")
	w.page.says("alert", "Redis at "+w.redis.Addr()+" accepts no connections (refused) since ")
	w.page.until(share("closed") + ` === '100.0 % no decision'`)
	w.page.until(share("local") + `.endsWith('decided locally')`)
	w.page.until(share("open") + `.includes(' % uncounted, 0 % of the others refused')`)
	now := w.store()
	if now.Uncounted < 30 {
		t.Errorf("%d requests went ahead uncounted, want 30 and more", now.Uncounted)
	}
	w.page.says("alert", fmt.Sprintf("%d requests went ahead uncounted since then.", now.Uncounted))
	w.page.until(fmt.Sprintf(`document.getElementById('count-uncounted').textContent === '%d'`, now.Uncounted))
	w.page.until(`[...document.querySelectorAll('#top-units tbody tr')].some(r => r.cells[0].textContent === 'demo:open:ann' && r.cells[2].textContent === 'uncounted')`)
	w.page.lacks("a-password")
	w.page.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	w.page.until(`document.documentElement.scrollWidth <= 360`)
	w.page.shoot("killed-phone")
	w.page.do(chromedp.EmulateViewport(1280, 900))

	w.redis.Restart()
	w.page.until(`document.getElementById('alert').hidden`)
	w.page.until(fmt.Sprintf(`document.getElementById('store').textContent.includes('Uncounted in the last outage%d requests')`, now.Uncounted))

	w.redis.Pause() // SIGSTOP
	w.fails()
	w.page.says("alert", "Redis at "+w.redis.Addr()+" does not answer in time (budget) since ")
	w.redis.Resume()
	w.page.until(`document.getElementById('alert').hidden`)
}

// open opens the page of a subject, and limit waits until its row of the limits begins with a text.
func (w *watched) open(entry string) {
	w.t.Helper()
	w.page.text(fmt.Sprintf(`location.hash = '#/subject?domain=demo&entry=%s'`, entry))
	w.page.until(fmt.Sprintf(`document.getElementById('h-window').textContent === 'demo:%s'`, entry))
}

func (w *watched) limit(want string) {
	w.t.Helper()
	w.page.until(fmt.Sprintf(`[...document.querySelectorAll('#limits tbody tr')].map(r => [...r.cells].map(c => c.textContent).join('|'))[0]?.startsWith(%q)`, want))
}

// While Redis is killed or stopped, the page of a subject has no number that was not read: it shows what Redis said last,
// dimmed and with its age, or this instance's share, or nothing. A page that gets no word from the service dims its numbers
// and says since when they stand.
func TestBrowserSubjectInAnOutage(t *testing.T) {
	w := watchAnOutage(t)
	w.asks(7, "closed", "open", "local")
	w.open("open:ann")
	w.limit("20/1h|7 of 20|13|")
	w.page.until(`document.querySelectorAll('#axis .marks rect').length > 0 && document.getElementById('known').hidden`)

	w.redis.Stop() // SIGKILL
	w.fails()
	since := "accepts no connections (refused) since "
	w.page.says("known", "Not known: Redis at "+w.redis.Addr()+" "+since, "The numbers below are what Redis said ", " ago, at ")
	w.limit("20/1h|7 of 20|13|–|–")
	w.page.until(`document.getElementById('limits').classList.contains('stale') && document.getElementById('axis').classList.contains('stale')`)
	w.page.shoot("subject-open")
	w.asks(20, "local")
	w.open("local:ann")
	w.page.says("known", "Redis at "+w.redis.Addr()+" "+since, "This instance decides alone, over its share of each limit.")
	w.limit("20/1h|10 of 10, the share of 20|0|")
	w.open("closed:ann") // which this page has not shown before
	w.page.says("known", "No earlier answer about this subject is at hand.")
	w.limit("20/1h|not known|–|–|–")

	w.redis.Restart() // without its data
	w.page.until(`document.getElementById('known').hidden`)
	w.limit("20/1h|0 of 20|20|free")

	w.redis.Pause() // SIGSTOP
	w.fails()
	w.page.says("known", "Not known: Redis at "+w.redis.Addr()+" does not answer in time (budget) since ", "what Redis said ")
	w.limit("20/1h|0 of 20|20|–")
	w.redis.Resume()
	w.page.until(`document.getElementById('known').hidden`)

	w.page.deaf.Store(true) // connections are refused
	if err := w.stop(t); err != nil {
		t.Fatal(err)
	}
	w.page.until(`document.getElementById('stale').textContent.startsWith('No word from this sash since ')`)
	w.page.until(`document.getElementById('overview').classList.contains('stale') && document.getElementById('found').classList.contains('stale')`)
	w.page.until(`!document.getElementById('search-error').hidden`) // a service that stops may answer once more
	clock := w.page.text(`document.getElementById('clock').textContent`)
	w.page.until(`(window.then ??= performance.now()) + 1500 < performance.now()`)
	if later := w.page.text(`document.getElementById('clock').textContent`); later != clock || !strings.HasPrefix(clock, "store clock ") {
		t.Errorf("the clock of old numbers goes on from %q to %q", clock, later)
	}
}
