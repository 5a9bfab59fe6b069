//go:build browser

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The dashboard works by keyboard: a user logs in, opens a subject, and sees the numbers of the API.
func TestBrowserDashboard(t *testing.T) {
	p := serve(t, "--admin-token-file", adminTokenFile(t))
	for i := range 40 {
		allow(t, p, fmt.Sprintf("192.0.2.%d", 1+i%3))
	}
	page := openTab(t, p.admin+"/dashboard")
	page.until(`document.getElementById('connection').textContent === 'live'`)

	// Without the token the page shows counts and no subjects.
	page.until(`document.querySelectorAll('#rules tbody tr').length === 1`)
	if text := page.text(`document.body.textContent`); strings.Contains(text, "192.0.2.") {
		t.Error("the page names a subject to strangers")
	}
	page.shoot("stranger")

	page.login()
	page.find("remote_address", "192.0.2.1")
	page.until(`document.querySelectorAll('#axis .marks rect').length === 10`)
	var stands struct {
		Subject string
		Limits  []struct {
			Name                   string
			Units, Used, Remaining int64
		}
	}
	administer(t, http.DefaultClient, "GET", p.admin+"/admin/v1/subject?domain=demo&entry=remote_address:192.0.2.1", "", &stands)
	if shown := page.text(`document.getElementById('h-window').textContent`); shown != stands.Subject {
		t.Errorf("the subject is %q, want %q", shown, stands.Subject)
	}
	for i, l := range stands.Limits {
		row := page.text(fmt.Sprintf(`[...document.querySelectorAll('#limits tbody tr')[%d].cells].slice(0, 3).map(c => c.textContent).join('|')`, i))
		if want := fmt.Sprintf("%s|%d of %d|%d", l.Name, l.Used, l.Units, l.Remaining); row != want {
			t.Errorf("limit %d is %q, want %q", i, row, want)
		}
	}
	if page.text(`String(document.getElementById('logout').hidden)`) != "false" {
		t.Error("a user who logged in cannot log out")
	}
	page.shoot("subject")

	// The numbers of the overview are those of the API.
	page.do(chromedp.Click(chromedp.CSS(`nav a[data-view=overview]`)))
	page.until(`document.querySelectorAll('#top-refused tbody tr').length === 3`)
	for _, by := range []string{"units", "refused"} {
		var top struct {
			Top []struct {
				Subject string
				Count   int64
			}
		}
		administer(t, http.DefaultClient, "GET", p.admin+"/admin/v1/top?by="+by, "", &top)
		var want []string
		for _, s := range top.Top {
			want = append(want, fmt.Sprintf("%s|%d", s.Subject, s.Count))
		}
		shown := page.text(`[...document.querySelectorAll('#top-` + by + ` tbody tr')].map(r => r.cells[0].textContent + '|' + r.cells[1].textContent).join(' ')`)
		if shown != strings.Join(want, " ") {
			t.Errorf("by %s the page shows %q, want %q", by, shown, want)
		}
	}
	if counts := page.text(`document.getElementById('count-allowed').textContent + ' ' + document.getElementById('count-refused').textContent`); counts != "30 10" {
		t.Errorf("allowed and refused are %s, want 30 and 10", counts)
	}
	page.shoot("overview")
	page.scheme("dark")
	page.shoot("overview-dark")

	// It fits a phone.
	page.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	page.until(`document.documentElement.scrollWidth <= 360`)
	page.shoot("overview-phone")
	page.do(chromedp.Click(chromedp.CSS(`#top-units a`)))
	page.until(`document.querySelectorAll('#axis .marks rect').length > 0`)
	page.until(`document.documentElement.scrollWidth <= 360`)
	page.shoot("subject-phone")
}
