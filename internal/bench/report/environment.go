package report

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
)

// Machine describes the processors and the system in one line.
func Machine() (string, error) {
	processors, err := cpu.Info()
	if err != nil {
		return "", err
	}
	system, err := host.Info()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, %d processors available, %s/%s, %s %s", processors[0].ModelName,
		runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, system.Platform, system.PlatformVersion), nil
}

// Versions returns the version of Go and of the named modules in this program.
func Versions(modules ...string) []string {
	versions := []string{runtime.Version()}
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if slices.Contains(modules, dep.Path) {
			versions = append(versions, dep.Path+" "+dep.Version)
		}
	}
	return versions
}
