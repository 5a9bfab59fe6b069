package admin

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

// Texts of the dashboard, those that are dimmed too, have a contrast of 4.5 to what they stand on, and marks 3, in the
// light and in the dark.
func TestTheDashboardHasContrast(t *testing.T) {
	sheet, err := page.ReadFile("page/style.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllSubmatch(sheet, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d schemes of colors, want 2", len(schemes))
	}
	for i, scheme := range schemes {
		colors := make(map[string]float64)
		for _, c := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{3,6});`).FindAllSubmatch(scheme[1], -1) {
			colors[string(c[1])] = luminance(t, string(c[2]))
		}
		for least, names := range map[float64][]string{
			4.5: {"text", "soft", "accent", "good", "warn", "bad"}, // stale is soft
			3:   {"allowed", "uncounted", "refused", "banned", "shadow", "error"},
		} {
			for _, name := range names {
				for _, ground := range []string{"panel", "ground"} {
					x, y := colors[name], colors[ground]
					if ratio := (max(x, y) + 0.05) / (min(x, y) + 0.05); ratio < least {
						t.Errorf("scheme %d: %s on %s has a contrast of %.2f, want %v", i, name, ground, ratio, least)
					}
				}
			}
		}
	}
}

// luminance is the relative luminance of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
