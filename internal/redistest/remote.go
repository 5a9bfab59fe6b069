package redistest

import "net"

// A Remote is a server that another process started, for tests with several processes. It holds one
// connection, which lives as long as this process.
type Remote struct {
	addr string
	conn conn
}

// Dial returns the server at an address. The first command connects.
func Dial(addr string) *Remote { return &Remote{addr: addr} }

// Do sends one command and returns its reply, like [Server.Do].
func (r *Remote) Do(args ...string) (any, error) {
	return r.conn.do(func() (net.Conn, error) { return net.DialTimeout("tcp", r.addr, replyTimeout) }, args)
}
