package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"example.com/sash/service/internal/admin"
	"example.com/sash/service/internal/rls"
)

// tokenVariable is the environment variable for the admin's token.
const tokenVariable = "SASH_ADMIN_TOKEN"

// administration is who may use the admin port, and how.
type administration struct {
	tokenFile, cert, key, clientCA string
}

func (m *administration) flags(f *pflag.FlagSet) {
	f.StringVar(&m.tokenFile, "admin-token-file", "", "`file` with the token for changes and user data on the admin address (default: the environment's "+tokenVariable+"; without either they are off)")
	f.StringVar(&m.cert, "admin-tls-cert", "", "certificate `file` of the admin address, which is then HTTPS")
	f.StringVar(&m.key, "admin-tls-key", "", "key `file` of the admin address's certificate")
	f.StringVar(&m.clientCA, "admin-client-ca", "", "`file` of the authorities whose clients, and nobody else, may use the admin address")
}

// access reads who may change things.
func (m *administration) access(env func(string) string) (admin.Access, error) {
	access := admin.Access{Token: env(tokenVariable), Certificates: m.clientCA != ""}
	if m.tokenFile != "" {
		text, err := os.ReadFile(m.tokenFile)
		if err != nil {
			return access, fmt.Errorf("--admin-token-file: %w", err)
		}
		if access.Token = strings.TrimSpace(string(text)); access.Token == "" {
			return access, fmt.Errorf("--admin-token-file: %s is empty", m.tokenFile)
		}
	}
	if (m.cert == "") != (m.key == "") || m.clientCA != "" && m.cert == "" {
		return access, errors.New("--admin-tls-cert and --admin-tls-key belong together, and --admin-client-ca needs them")
	}
	return access, access.Check()
}

// secure returns the configuration of TLS, or nil where there is none.
func (m *administration) secure() (*tls.Config, error) {
	if m.cert == "" {
		return nil, nil
	}
	files := rls.TLSFiles{Cert: m.cert, Key: m.key, ClientCA: m.clientCA, Protocols: []string{"h2", "http/1.1"}}
	config, err := files.Config()
	if err != nil {
		return nil, fmt.Errorf("TLS of the admin address (--admin-tls-cert and what belongs to it): %w", err)
	}
	return config, nil
}

// scheme is that of the admin address.
func (m *administration) scheme() string {
	if m.cert != "" {
		return "https"
	}
	return "http"
}

// warn says what a token on an address that others reach needs.
func (m *administration) warn(log *slog.Logger, on net.Addr, access *admin.Access) {
	tcp, ok := on.(*net.TCPAddr)
	if ok && !tcp.IP.IsLoopback() && access.Token != "" && m.cert == "" {
		log.Warn("the admin's token goes over the network in plain text: give --admin-tls-cert and --admin-tls-key, or listen on loopback", "admin", on.String())
	}
}
