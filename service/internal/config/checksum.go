package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// checksumLine begins the first line of a file that says what follows: a file that was cut off is often a smaller
// configuration. The line is a comment, so Envoy's service reads the file too.
const checksumLine = "# sha256:"

// checksum compares a file with its first line, if that has a checksum: the SHA-256 of all further lines, in hexadecimal.
func checksum(file File) error {
	first, rest, _ := bytes.Cut(file.Text, []byte("\n"))
	claimed, ok := strings.CutPrefix(string(first), checksumLine)
	if !ok {
		return nil
	}
	sum := sha256.Sum256(rest)
	if claimed = strings.TrimSpace(claimed); strings.EqualFold(claimed, hex.EncodeToString(sum[:])) {
		return nil
	}
	return fmt.Errorf("%s:1: the file was cut off or changed: its checksum is %q, and that of the lines below it %x. Copy it again, or correct this line",
		file.Name, claimed, sum)
}
