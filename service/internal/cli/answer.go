package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"example.com/sash/service/internal/verdict"
)

// answer writes a verdict, and returns errRefused for a refusal.
func (a *app) answer(s *subject, v verdict.Verdict) error {
	var err error
	if s.json {
		err = writeJSON(a.out, v)
	} else {
		_, err = io.WriteString(a.out, describe(v)+"\n")
	}
	if err == nil && !v.Allowed {
		return errRefused
	}
	return err
}

// describe puts a verdict into one line.
func describe(v verdict.Verdict) string {
	var b strings.Builder
	if v.Allowed {
		fmt.Fprintf(&b, "allowed: %s left", units(*v.Remaining))
	} else {
		wait := time.Duration(v.RetryAfter)
		fmt.Fprintf(&b, "refused by %s: %s left, retry after %v (at %s)", *v.RefusedBy, units(*v.Remaining),
			wait, time.Time(*v.At).Add(wait).UTC().Format(time.RFC3339Nano))
	}
	if len(v.Limits) > 1 {
		for i, l := range v.Limits {
			sep := ", "
			if i == 0 {
				sep = " ("
			}
			fmt.Fprintf(&b, "%s%d of %s", sep, l.Remaining, l.Name)
		}
		b.WriteString(")")
	}
	return b.String()
}

func units(n int64) string {
	if n == 1 {
		return "1 unit"
	}
	return strconv.FormatInt(n, 10) + " units"
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
