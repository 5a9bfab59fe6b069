package redistest

import "net"

// A Remote is a server that another process started, for tests whose work is done by several processes.
// It is one connection, which lives as long as the process.
type Remote struct {
	addr string
	conn conn
}

// Dial returns the server at an address; it connects with the first command.
func Dial(addr string) *Remote { return &Remote{addr: addr} }

// Do sends one command and returns its reply, like [Server.Do].
func (r *Remote) Do(args ...string) (any, error) {
	return r.conn.do(func() (net.Conn, error) { return net.DialTimeout("tcp", r.addr, replyTimeout) }, args)
}
