package rls

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
	_ = framer.WriteRSTStream(3, http2.ErrCodeCancel)
	for _, size := range []int{1, 2, 7, 9, 10, 64, wire.Len()} {
		var seen []string
		f := frames{body: len(http2.ClientPreface), see: func(kind http2.FrameType, flags http2.Flags, stream uint32) {
			seen = append(seen, fmt.Sprint(kind, flags, stream))
		}}
		for rest := wire.Bytes(); len(rest) > 0; {
			n := min(size, len(rest))
			f.read(rest[:n])
			rest = rest[n:]
		}
		if got := strings.Join(seen, ", "); got != "SETTINGS 0 0, HEADERS 4 1, DATA 1 1, RST_STREAM 0 3" {
			t.Errorf("in pieces of %d bytes: %s", size, got)
		}
	}
}
