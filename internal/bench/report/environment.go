package report

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
)

// Machine describes the processor and the system in one line.
func Machine() string {
	cpu := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	system := runtime.GOOS
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				system = strings.Trim(strings.TrimSpace(name), `"`)
			}
		}
	}
	return fmt.Sprintf("%s, %d processors available, %s/%s, %s", cpu, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, system)
}

// Versions returns the version of Go and of the named modules in this program.
func Versions(modules ...string) []string {
	all := []string{runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return all
	}
	for _, want := range modules {
		for _, dep := range info.Deps {
			if dep.Path == want {
				all = append(all, dep.Path+" "+dep.Version)
			}
		}
	}
	return all
}
