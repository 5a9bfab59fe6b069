//go:build browser

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"example.com/sash/service/internal/playground"
	"example.com/sash/service/internal/servertest"
)

func openPlayground(t *testing.T, hash string) *tab {
	t.Helper()
	file := servertest.Must(filepath.Abs("../../internal/playground/playground.html"))(t)
	p := openTab(t, "file://"+file+hash)
	p.until(`document.body.dataset.ready === 'true'`)
	return p
}

// row returns the cells of an algorithm, joined.
func (p *tab) row(algorithm string) string {
	p.t.Helper()
	return p.text(`[...document.querySelector('#results tr[data-algorithm=` + algorithm + `]').cells].map((c) => c.textContent).join('|')`)
}

// The limiter in the page is that of this repository: it answers random scenarios alike.
func TestBrowserPlaygroundDecidesAsTheLimiter(t *testing.T) {
	p := openPlayground(t, "")
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 5))
		s := playground.Scenario{Limits: "5/1s,20/1m", Resolution: 100 * time.Millisecond}
		var calls []string
		for range 20 {
			c := playground.Call{At: time.Duration(random.Int64N(90e6)) * time.Microsecond, Cost: 1 + random.Int64N(4), Count: 1 + random.IntN(4), Book: random.IntN(3) == 0}
			s.Calls = append(s.Calls, c)
			calls = append(calls, fmt.Sprintf("{at:%d,cost:%d,count:%d,book:%v}", c.At.Microseconds(), c.Cost, c.Count, c.Book))
		}
		tracks := servertest.Must(playground.Run(t.Context(), s))(t)
		var want [][]any
		for _, track := range tracks {
			var all []any
			for _, a := range track.Answers {
				starts := []int64{}
				for _, at := range a.Starts {
					starts = append(starts, at.Microseconds())
				}
				all = append(all, []any{a.Admitted, a.Refused, a.RetryAfter.Microseconds(), starts, append([]int64{}, a.Remaining...), a.Note})
			}
			want = append(want, all)
		}
		text := p.text(fmt.Sprintf(`JSON.stringify(decide({limits: '5/1s,20/1m', algorithms: [], resolution: 1e5, calls: [%s]}).tracks.map((t) => t.answers.map((a) => (
			[a.admitted, a.refused, a.retryAfter, a.starts, a.remaining, a.note]))))`, strings.Join(calls, ",")))
		if wanted, err := json.Marshal(want); err != nil || text != string(wanted) {
			t.Fatalf("seed %d: the page answers\n%s\nand the limiter\n%s\n(run make playground)", seed, text, wanted)
		}
	}
}

func TestBrowserPlaygroundIsDraggedAndShared(t *testing.T) {
	p := openPlayground(t, "#limits=2/10s&span=20&calls=1:1,2:1,3:1&at=3")
	if row := p.row("sliding-log"); !strings.Contains(row, "|2|1|") {
		t.Fatalf("%q", row)
	}
	// The third call is dragged to behind the window of the first, where it fits.
	p.text(`(() => {
		const svg = document.getElementById('axis');
		const box = svg.querySelector('[data-call="2"] rect').getBoundingClientRect();
		const to = svg.getBoundingClientRect().left + left + 12 / 20 * width;
		const send = (on, type, x) => on.dispatchEvent(new PointerEvent(type, { bubbles: true, cancelable: true, clientX: x, clientY: box.top + 2 }));
		send(svg.querySelector('[data-call="2"] rect'), 'pointerdown', box.left + 3);
		send(window, 'pointermove', to);
		send(window, 'pointerup', to);
		return '';
	})()`)
	p.until(`location.hash.includes('calls=1:1,2:1,12:1')`)
	if row := p.row("sliding-log"); !strings.Contains(row, "|3|0|") || !strings.Contains(row, "admitted") {
		t.Errorf("%q", row)
	}
	p.press(kb.ArrowLeft)
	p.until(`location.hash.includes('calls=1:1,2:1,11.9:1')`)
	p.accessible("playground")
	again := openTab(t, p.text(`location.href`))
	again.until(`document.body.dataset.ready === 'true' && JSON.stringify(state.calls) === '` + p.text(`JSON.stringify(state.calls)`) + `'`)
	p.text("(location.hash = 'limits=<img src=x onerror=alert(1)>', '')")
	p.says("error", "invalid limit")
	p.text(`(location.hash = 'limits=3/10s&calls=2:1bx4&span=40', '')`)
	p.until(`document.getElementById('error').hidden`)
	p.text(`(document.querySelector('[data-call="0"]').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true })), '')`)
	if row := p.row("sliding-log"); !strings.Contains(row, "start") || !strings.Contains(row, "12 s") {
		t.Errorf("%q", row)
	}
}
