package config

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// However much of a file with a checksum has arrived, it is used only if it is all there. Without the checksum, each
// descriptor that is complete would be a smaller configuration.
func TestAFileThatIsCutOffIsNotUsed(t *testing.T) {
	const rules = "domain: d\ndescriptors:\n  - {key: a, limits: [1/1s]}\n  - {key: b, limits: [1/1s]}\n"
	text := fmt.Sprintf("# sha256: %x\n%s", sha256.Sum256([]byte(rules)), rules)
	cfg, err := Parse("x.yaml", []byte(text))
	if err != nil || len(cfg.Rules()) != 2 {
		t.Fatalf("the whole file: %v", err)
	}
	for n := range len(text) {
		if _, err := Parse("x.yaml", []byte(text[:n])); err == nil {
			t.Errorf("the first %d bytes are used: %q", n, text[:n])
		}
	}
	if _, err := Parse("x.yaml", []byte(rules[:strings.Index(rules, "  - {key: b")])); err != nil {
		t.Errorf("without a checksum: %v", err)
	}
}

func TestAWrongChecksumSaysTheRightOne(t *testing.T) {
	right := fmt.Sprintf("%x", sha256.Sum256([]byte("domain: d\n")))
	for _, claimed := range []string{"", "abc", strings.Repeat("0", 64)} {
		_, err := Parse("x.yaml", []byte("# sha256: "+claimed+"\ndomain: d\n"))
		if err == nil || !strings.Contains(err.Error(), "x.yaml:1: ") || !strings.Contains(err.Error(), right) {
			t.Errorf("%q: %v", claimed, err)
		}
	}
	for _, text := range []string{"# sha256: " + strings.ToUpper(right) + "\ndomain: d\n", "#sha256: abc\ndomain: d\n", "# a comment\ndomain: d\n# sha256: abc\n"} {
		if _, err := Parse("x.yaml", []byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
