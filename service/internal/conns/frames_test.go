package conns

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

func TestFramesAreReadFromAnyPieces(t *testing.T) {
	var wire bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&wire, nil)
	_ = framer.WriteSettings()
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 300), EndHeaders: true})
	_ = framer.WriteData(1, true, make([]byte, 3))
	reserved := wire.Len() + 5 // of the next frame: the bit that says nothing
	_ = framer.WriteRSTStream(3, http2.ErrCodeCancel)
	wire.Bytes()[reserved] |= 0x80
	for _, size := range []int{1, 2, 7, 9, 10, 64, wire.Len()} {
		var seen []string
		f := Frames{Rest: len(http2.ClientPreface)}
		for rest := wire.Bytes(); len(rest) > 0; {
			n, head, ok := f.Next(rest[:min(size, len(rest))])
			if rest = rest[n:]; ok {
				seen = append(seen, fmt.Sprint(head.Type, head.Flags, head.StreamID, head.Length))
			}
		}
		if got := strings.Join(seen, ", "); got != "SETTINGS 0 0 0, HEADERS 4 1 300, DATA 1 1 3, RST_STREAM 0 3 4" || !f.Between() {
			t.Errorf("in pieces of %d bytes: %s", size, got)
		}
	}
}
