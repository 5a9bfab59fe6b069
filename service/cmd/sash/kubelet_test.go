package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/sash/service/internal/servertest"
)

// A kubelet mounts a ConfigMap or a Secret in a directory: the files are links through ..data to the directory of their
// version, and so are directories, which `items` of a volume can make. It replaces all of them at once, by renaming
// ..data.
type kubelet struct {
	dir     string
	version int
}

// mount replaces the files by others.
func (k *kubelet) mount(t *testing.T, files map[string]string) {
	t.Helper()
	k.version++
	current := fmt.Sprintf("..2026_11_23_07_00_%02d.1", k.version)
	for name, text := range files {
		put(t, filepath.Join(k.dir, current, name), text)
	}
	cmd := exec.Command("sh", "-ec", `
ln -s "$0" ..data_tmp
mv -T ..data_tmp ..data
for name in $(ls ..data); do [ -L "$name" ] || ln -s "..data/$name" "$name"; done
find -L . -maxdepth 1 -type l -delete # what the version does not have
find . -maxdepth 1 -name '..2*' ! -name "$0" -exec rm -r {} +`, current)
	cmd.Dir = k.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// limitOf is a file with a limit of so many units for each value of key.
func limitOf(domain, units string) string {
	return fmt.Sprintf("domain: %s\ndescriptors: [{key: key, limits: [%s/1h]}]\n", domain, units)
}

// left returns what a fresh subject of the domain has left, or nil without such a domain.
func left(t *testing.T, p *service, domain string) any {
	t.Helper()
	_, said := post(t, p.url+"/v1/peek", subject(domain, "key", "fresh"))
	return said["remaining"]
}

// The service follows a ConfigMap with files and directories, from version to version, and keeps the last valid one.
func TestAConfigMapThatAKubeletReplaces(t *testing.T) {
	k := &kubelet{dir: t.TempDir()}
	files := map[string]string{"one.yaml": limitOf("one", "1"), "teams/two.yaml": limitOf("two", "2"),
		"teams/deep/three.yaml": limitOf("three", "3")}
	k.mount(t, files)
	p := serve(t, "--config", k.dir)
	holds := func(want string) {
		t.Helper()
		servertest.Wait(t, "the limits are not "+want, func() bool {
			return fmt.Sprint(left(t, p, "one"), left(t, p, "two"), left(t, p, "three"), left(t, p, "four")) == want
		})
	}
	holds("1 2 3 <nil>")
	if strings.Contains(p.logs.String(), "is not read") {
		t.Errorf("files are left out: %s", p.logs)
	}
	for _, units := range []string{"20", "21", "22"} { // the directories of earlier versions are gone
		files["teams/two.yaml"] = limitOf("two", units)
		files["teams/deep/three.yaml"] = limitOf("three", "3"+units)
		k.mount(t, files)
		holds("1 " + units + " 3" + units + " <nil>")
	}

	files["one.yaml"], files["teams/two.yaml"] = limitOf("one", "10"), limitOf("two", "many")
	k.mount(t, files)
	servertest.Wait(t, "nothing says that the configuration is wrong", func() bool {
		return strings.Contains(p.logs.String(), "the last valid one stays in use") && strings.Contains(p.logs.String(), "teams/two.yaml")
	})
	holds("1 22 322 <nil>")
	p.shows(t, "/rlconfig", "teams/two.yaml")

	delete(files, "teams/deep/three.yaml")
	files["teams/two.yaml"] = limitOf("two", "200")
	files["later/four.yaml"] = limitOf("four", "4")
	k.mount(t, files)
	holds("10 200 <nil> 4")
}
