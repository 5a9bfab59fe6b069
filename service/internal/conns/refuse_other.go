//go:build !linux

package conns

import (
	"net"
	"os"
)

// refuse lets no new client connect to a Unix socket. On TCP a client that connects just before the listener closes is
// reset.
func refuse(listener net.Listener) {
	if local, ok := listener.(*net.UnixListener); ok {
		local.SetUnlinkOnClose(false) // the path may be another listener's by then
		_ = os.Remove(local.Addr().String())
	}
}
