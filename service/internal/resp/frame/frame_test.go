package frame

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/redcon"
)

// Only whole commands within the bounds pass, and redcon reads them as they were written.
func FuzzFrame(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n"))
	f.Add([]byte("*1\r\n$-5\r\n"))
	f.Add([]byte("*1\r\n$9223372036854775807\r\n"))
	f.Add([]byte("PING\r\n\r\n*0\r\nQUIT\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			n, err := frame(b)
			if n < 0 || n > len(b) || n > MaxCommand || err != nil && n != 0 {
				t.Fatalf("%q: %d, %v", b, n, err)
			}
			if n == 0 {
				return
			}
			for less := range n {
				if early, err := frame(b[:less]); early != 0 || err != nil {
					t.Fatalf("%q, of which %d bytes have come: %d, %v", b[:n], less, early, err)
				}
			}
			complete, args, _, left, err := redcon.ReadNextCommand(b[:n], nil)
			if !complete || err != nil || len(left) != 0 || len(args) > maxArgs {
				t.Fatalf("%q: %v %q %v, left %q", b[:n], complete, args, err, left)
			}
			if b[0] == '*' && len(args) > 0 {
				if again := encode(args); again != string(b[:n]) && !bytes.Contains(b[:n], []byte("0")) { // but leading zeros
					t.Fatalf("%q is read as %q", b[:n], args)
				}
			}
			b = b[n:]
		}
	})
}

// encode returns a command as clients send it.
func encode(args [][]byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.String()
}
