package access

import (
	"crypto/tls"
	"strings"
	"testing"
)

// A file that is missing or has no certificate is named.
func TestFilesThatAreWrongAreNamed(t *testing.T) {
	for _, file := range []string{"/nowhere", "certs.go"} {
		for _, err := range []error{Certify(&tls.Config{}, file, "", ""), Certify(&tls.Config{}, "", file, file)} {
			if err == nil || file == "/nowhere" && !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}
