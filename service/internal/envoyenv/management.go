package envoyenv

import (
	"strings"
	"time"
)

// Management is a server that the configuration comes from.
type Management struct {
	// Server is its address, and Node what it knows this process by.
	Server, Node string
	// Headers go with each stream.
	Headers map[string]string
	// Retry is the pause before a stream is opened again; zero when nothing is said.
	Retry time.Duration
	// TLS is on, with the server's authorities (empty for the system's), this client's certificate (empty
	// for none) and the name that the server must have (empty for that of its address).
	TLS           bool
	CA, Cert, Key string
	ServerName    string
}

func (r *reader) management() *Management {
	m := &Management{
		Server:     r.text("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
		Node:       r.text("CONFIG_GRPC_XDS_NODE_ID", "default"),
		Retry:      r.duration("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL"),
		TLS:        r.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS"),
		CA:         r.env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
		Cert:       r.env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
		Key:        r.env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
		ServerName: r.env("CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
	}
	if text := r.env("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"); text != "" {
		m.Headers = make(map[string]string)
		for pair := range strings.SplitSeq(text, ",") {
			name, value, ok := strings.Cut(pair, ":")
			if !ok {
				r.fail("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: it is name:value,name:value")
			}
			m.Headers[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
		}
	}
	return m
}
