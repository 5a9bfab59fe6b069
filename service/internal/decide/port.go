package decide

// A Port is the data port that a request came to. The zero value is HTTP.
type Port uint8

// Ports.
const (
	HTTP Port = iota
	GRPC
	RESP
	Ports // how many there are
)

// String returns the name of the port.
func (p Port) String() string { return [Ports]string{"http", "grpc", "resp"}[p] }
