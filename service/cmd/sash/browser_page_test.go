//go:build browser

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"example.com/sash/service/internal/servertest"
)

// A tab is a page in headless Chromium. What goes wrong in it fails the test, unless it is deaf.
type tab struct {
	t    *testing.T
	ctx  context.Context
	deaf atomic.Bool
}

// openTab opens a page and watches its console from the start.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	ctx, end := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(end)
	ctx, done := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(done)
	ctx, closed := chromedp.NewContext(ctx)
	p := &tab{t: t, ctx: ctx}
	var wg sync.WaitGroup
	said := chromedp.Console(ctx)
	wg.Go(func() {
		for m, err := range said {
			if err != nil {
				return
			}
			if !p.deaf.Load() {
				t.Errorf("the console: %v (%s)", m, m.URL)
			}
		}
	})
	t.Cleanup(func() {
		closed()
		wg.Wait()
	})
	p.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url))
	return p
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	servertest.Check(p.t, chromedp.Do(p.ctx, steps...))
}

func (p *tab) lacks(text string) {
	p.t.Helper()
	if strings.Contains(p.text(`document.body.textContent`), text) {
		p.t.Errorf("the page shows %s", text)
	}
}

// login logs in, by keyboard alone.
func (p *tab) login() {
	p.t.Helper()
	p.shortcut('/')
	p.until(`document.activeElement?.name === 'token'`)
	p.press(adminToken + "\r")
	p.until(`document.getElementById('locked').hidden`)
}

// find opens the page of a subject of one entry, after a login.
func (p *tab) find(key, value string) {
	p.t.Helper()
	p.until(`document.activeElement?.classList.contains('key')`)
	p.press(key + "\t" + value + "\r")
	p.until(`!document.getElementById('found').hidden`)
}

func (p *tab) text(script string) string {
	p.t.Helper()
	s, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](script))
	if err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
	return s
}

func (p *tab) until(script string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Poll[bool](script, chromedp.WithPollingTimeout(15*time.Second))); err != nil {
		p.shoot("failed")
		p.t.Fatalf("never: %s: %v", script, err)
	}
}

func (p *tab) says(element string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.until(fmt.Sprintf(`!document.getElementById(%q).hidden && document.getElementById(%[1]q).textContent.includes(%q)`, element, text))
	}
}

// press presses keys, one after the other.
func (p *tab) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// shortcut presses a key that types nothing: the page prevents it, which Chromium's protocol would not notice.
func (p *tab) shortcut(key rune) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, event := range kb.Encode(key) {
			if event.Type == kb.KeyChar {
				continue
			}
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, *event); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (p *tab) scheme(name string) {
	p.t.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
		})
		return err
	}))
}

// accessible checks the page with axe, light and dark, on a desk and on a phone.
func (p *tab) accessible(what string) {
	p.t.Helper()
	axe, err := os.ReadFile("../../../bin/axe/node_modules/axe-core/axe.min.js")
	if err != nil {
		p.t.Fatalf("%v (make test-browser installs it)", err)
	}
	p.text(string(axe) + "; ''")
	for _, scheme := range []string{"dark", "light"} {
		p.scheme(scheme)
		for _, width := range []int{390, 1280} {
			p.do(chromedp.EmulateViewport(int64(width), 900))
			p.until(fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width))
			p.shoot(fmt.Sprintf("%s-%s-%d", what, scheme, width))
			p.text(`(window.found = undefined, axe.run().then((r) => { window.found = r.violations.flatMap((v) => v.nodes.map((n) => v.id + ' ' + n.target + ' ' + n.failureSummary)).join('\n'); }), '')`)
			p.until(`window.found !== undefined`)
			if found := p.text(`window.found`); found != "" {
				p.t.Errorf("%s, %s, %d wide: %s", what, scheme, width, found)
			}
		}
	}
}

// shoot takes a picture of the whole page: go test -artifacts keeps it.
func (p *tab) shoot(name string) {
	p.t.Helper()
	picture := servertest.Must(chromedp.Run(p.ctx, chromedp.FullScreenshot(100)))(p.t)
	servertest.Check(p.t, os.WriteFile(filepath.Join(p.t.ArtifactDir(), name+".png"), picture, 0o600))
}
