package conns

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// refuse lets no new client connect, and keeps those in the listener's queue. A Unix socket loses its path. On TCP the
// system ignores the first packet of a connection (SYN without ACK) from now on; its client tries again after a second
// and is then refused. Where that cannot be set, a client that connects just before the listener closes is reset.
func refuse(listener net.Listener) {
	if local, ok := listener.(*net.UnixListener); ok {
		local.SetUnlinkOnClose(false) // the path may be another listener's by then
		_ = os.Remove(local.Addr().String())
		return
	}
	socket, ok := listener.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	program := []unix.SockFilter{ // on the header of TCP
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},           // its flags
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0x12},        // SYN and ACK
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: 0x02, Jf: 1}, // SYN alone
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},                          // is dropped
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},                 // the rest passes
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &filter)
	})
}
