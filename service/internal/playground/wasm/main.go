//go:build js && wasm

// Command wasm runs the limiter in the playground's page. It sets the JavaScript function decide, which takes a
// scenario and returns tracks. Times are microseconds.
package main

import (
	"context"
	"fmt"
	"syscall/js"
	"time"

	"example.com/sash/service/internal/playground"
)

func main() {
	js.Global().Set("decide", js.FuncOf(func(_ js.Value, args []js.Value) (out any) {
		defer func() {
			if why := recover(); why != nil { // such as an argument of another type
				out = failed(fmt.Sprint(why))
			}
		}()
		tracks, err := playground.Run(context.Background(), scenario(args[0]))
		if err != nil {
			return failed(err.Error())
		}
		return map[string]any{"tracks": list(tracks, track)}
	}))
	js.Global().Get("document").Call("dispatchEvent", js.Global().Get("Event").New("ready"))
	select {}
}

func failed(text string) any { return map[string]any{"error": text} }

func scenario(v js.Value) playground.Scenario {
	s := playground.Scenario{Limits: v.Get("limits").String(), Resolution: microseconds(v.Get("resolution"))}
	for i := range v.Get("algorithms").Length() {
		s.Algorithms = append(s.Algorithms, v.Get("algorithms").Index(i).String())
	}
	calls := v.Get("calls")
	for i := range calls.Length() {
		c := calls.Index(i)
		s.Calls = append(s.Calls, playground.Call{
			At: microseconds(c.Get("at")), Cost: int64(c.Get("cost").Float()), Count: c.Get("count").Int(), Book: c.Get("book").Bool(),
		})
	}
	return s
}

// microseconds reads a time. Its value is exact in floating point for 285 years.
func microseconds(v js.Value) time.Duration {
	if v.IsUndefined() {
		return 0
	}
	return time.Duration(v.Float()) * time.Microsecond
}

func list[T any](all []T, to func(T) any) []any {
	out := make([]any, len(all))
	for i, one := range all {
		out[i] = to(one)
	}
	return out
}

func track(t playground.Track) any {
	return map[string]any{
		"algorithm": t.Algorithm, "admitted": t.Admitted, "refused": t.Refused, "error": t.Error,
		"answers": list(t.Answers, answer), "worst": list(t.Worst, worst),
	}
}

func answer(a playground.Answer) any {
	return map[string]any{
		"admitted": a.Admitted, "refused": a.Refused, "retryAfter": a.RetryAfter.Microseconds(), "note": a.Note,
		"starts":    list(a.Starts, func(d time.Duration) any { return d.Microseconds() }),
		"remaining": list(a.Remaining, func(n int64) any { return n }),
	}
}

func worst(w playground.Worst) any {
	return map[string]any{"limit": w.Limit, "units": w.Units, "most": w.Most, "ends": w.Ends.Microseconds()}
}
