package instructions

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

var references = regexp.MustCompile(`I +refs: +([\d,]+)`)

// Program returns the instructions of a run of this program with other arguments. The run has one processor and collects
// no garbage, so that counts repeat within a hundredth.
func Program(args ...string) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("valgrind", append([]string{"--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", self}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("instructions: %w\n%s", err, out)
	}
	match := references.FindSubmatch(out)
	if match == nil {
		return 0, errors.New("instructions: cachegrind counted nothing")
	}
	return strconv.ParseFloat(strings.ReplaceAll(string(match[1]), ",", ""), 64)
}
