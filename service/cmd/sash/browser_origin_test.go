//go:build browser

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// hostile is a page of another origin. It tries what a browser sends for a page: requests with and without a preflight,
// beacons, forms, images, scripts, style sheets and frames, with the cookies and from the network of its user.
const hostile = `<!doctype html><title>trying</title><body><script type="module">
const [http, admin, token] = %s;
const ann = [{ key: 'user', value: 'ann' }];
const subject = { domain: 'demo', entries: ann };
const envoy = (more, all) => ({ domain: 'demo', descriptors: [{ entries: ann, ...more }], ...all });
const targets = [
  [http + '/v1/allow', { ...subject, cost: 10 }], [http + '/v1/settle', { token, used: 50 }],
  [http + '/json', envoy({}, { hitsAddend: 10 })],
  [http + '/json', envoy({ isNegativeHits: true, hitsAddend: '5' })],
  [http + '/json', envoy({ limit: { requestsPerUnit: 1000000, unit: 'DAY' } }, { hitsAddend: 10 })],
  [admin + '/admin/v1/reset', subject], [admin + '/admin/v1/bans', { ...subject, expires: '2h' }],
  [admin + '/admin/v1/overrides', { ...subject, limits: ['1/1h'], expires: '2h' }],
  [admin + '/logout', {}],
];
let answers = 0;
const send = (url, init) => fetch(url, { method: 'POST', credentials: 'include', ...init }).then(() => answers++, () => {});
const form = (url, body, enctype) => new Promise((done) => {
  const frame = document.createElement('iframe');
  frame.name = Math.random();
  const f = document.createElement('form');
  Object.assign(f, { method: 'POST', action: url, target: frame.name, enctype });
  const field = document.createElement('input');
  const text = JSON.stringify(body); // as the name of a field, so that the body is JSON: {…,"x":"="}
  [field.name, field.value] = enctype === 'text/plain' ? [text.replace(/}$/, ',"x":"'), '"}'] : [text, ''];
  f.append(field);
  document.body.append(frame, f);
  frame.addEventListener('load', done);
  f.submit();
  setTimeout(done, 1000);
});
for (const [url, body] of targets) {
  const text = JSON.stringify(body);
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    await send(url, { mode: 'no-cors', headers: { 'Content-Type': type }, body: text });
    navigator.sendBeacon(url, new Blob([text], { type }));
  }
  await send(url, { mode: 'cors', headers: { 'Content-Type': 'text/plain' }, body: text });
  await send(url, { mode: 'cors', headers: { 'Content-Type': 'application/json', Authorization: 'Bearer x' }, body: text });
  await Promise.all(['text/plain', 'application/x-www-form-urlencoded'].map((enctype) => form(url, body, enctype)));
}
await send(admin + '/admin/v1/bans', { method: 'DELETE', mode: 'cors', body: undefined });
const ask = http + '/v1/forward-auth?domain=demo&descriptor=user%%3Dann';
const loads = ['img', 'script', 'iframe', 'link'].map((tag) => new Promise((done) => {
  const node = document.createElement(tag);
  node.addEventListener('load', done);
  node.addEventListener('error', done);
  if (tag === 'link') [node.rel, node.href] = ['stylesheet', ask];
  else node.src = ask;
  document.body.append(node);
}));
await Promise.all(loads);
await send(ask, { method: 'GET', mode: 'no-cors' });
await send(ask, { method: 'GET', mode: 'cors', headers: { 'X-Forwarded-For': '192.0.2.7' } });
document.title = 'tried: ' + answers;
</script>`

// A page of another origin, in the browser of an operator who is logged in and on a machine that may do everything,
// changes nothing: no unit of a user is charged or given back, no operator's order is given or taken back.
func TestBrowserPageOfAnotherOrigin(t *testing.T) {
	everything := tempFile(t, "access.yaml", "anonymous: {allow: [decide, refund, override]}\n")
	p := serveDashboard(t, nil, "- {key: user, limits: [1000/1h]}\n", "--access", everything)
	ann := subject("demo", "user", "ann", `,"cost":100`)
	status, reserved := post(t, p.url+"/v1/reserve", ann)
	if status != http.StatusOK {
		t.Fatal(status, reserved)
	}
	urls, _ := json.Marshal([]any{p.url, p.admin, reserved["token"]})
	for name, host := range map[string]string{"same site": "127.0.0.1", "another site": "localhost"} {
		t.Run(name, func(t *testing.T) {
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(w, hostile, urls)
			}))
			t.Cleanup(other.Close)
			page := openTab(t, p.admin+"/dashboard")
			page.login()
			_, before := post(t, p.url+"/v1/peek", ann)
			requests := func() string { return fmt.Sprint(scrape(t, p)["sash_requests_total"].Metric) } // for a decision
			decided := requests()
			page.deaf.Store(true) // refusals stand in the console
			page.do(chromedp.Navigate(strings.Replace(other.URL, "127.0.0.1", host, 1)))
			page.until(`document.title.startsWith('tried: ')`)
			_, after := post(t, p.url+"/v1/peek", ann)
			if title := page.text(`document.title`); title == "tried: 0" || before["remaining"] != after["remaining"] || requests() != decided {
				t.Errorf("%s: of %v units %v are left; decisions were %s, and are %s", title, before["remaining"],
					after["remaining"], decided, requests())
			}
			var bans struct{ Bans, Overrides []struct{} }
			administer(t, http.DefaultClient, "GET", p.admin+"/admin/v1/bans", "", &bans)
			administer(t, http.DefaultClient, "GET", p.admin+"/admin/v1/overrides", "", &bans)
			if len(bans.Bans)+len(bans.Overrides) > 0 {
				t.Errorf("the page gave orders: %+v", bans)
			}
			page.do(chromedp.Navigate(p.admin + "/dashboard"))
			page.until(`document.getElementById('connection').textContent === 'live' && document.getElementById('locked').hidden`) // still logged in
		})
	}
}
