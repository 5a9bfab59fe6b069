package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	// As a deployment does it: a new link is renamed over the old one.
	if err := errors.Join(os.Symlink(target, name+".new"), os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
}

func domainOf(units int) string {
	return "domain: d\ndescriptors:\n- key: k\n  limits: [" + strconv.Itoa(units) + "/1m]\n"
}

func TestADirectoryIsReadFileByFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/b.yaml", "domain: b\n")
	write(t, dir+"/a.yml", "domain: a\n")
	cfg, _, err := Source{Path: dir}.Load()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(cfg.Domains(), " "); got != "a b" {
		t.Errorf("domains %s", got)
	}
	write(t, dir+"/c.yaml", "domain: a\ndescriptors: [{key: x, limits: [1/s]}]\n")
	if _, _, err := (Source{Path: dir}).Load(); err == nil || !strings.Contains(err.Error(), "c.yaml:1: duplicate domain a, first on "+dir+"/a.yml:1") {
		t.Errorf("a domain in two files: %v", err)
	}
	if cfg, _, err = (Source{Path: dir, Merge: true}).Load(); err != nil || len(cfg.Rules()) != 1 {
		t.Errorf("merged: %v", err)
	}
	write(t, dir+"/d.yaml", "domain: a\ndescriptors: [{key: x}]\n")
	if _, _, err := (Source{Path: dir, Merge: true}).Load(); err == nil || !strings.Contains(err.Error(), "d.yaml:2: duplicate descriptor a / x") {
		t.Errorf("a descriptor in two files of a domain: %v", err)
	}
	if _, _, err := (Source{Path: t.TempDir()}).Load(); err == nil || !strings.Contains(err.Error(), "has no file") {
		t.Errorf("an empty directory: %v", err)
	}
}

// Envoy's service reads every file, whatever its name and however deep. Sash warns of the files that it leaves out.
func TestEveryFileOfADirectoryIsReadOrNamed(t *testing.T) {
	root := t.TempDir()
	dir := root + "/config"
	for _, name := range []string{"plain", "b.conf", "deep/er/c.yaml", "deep/README.md", ".hidden.yaml", ".dir/d.yaml", "..data/e.yaml"} {
		write(t, dir+"/"+name, "domain: "+strings.Trim(strings.ReplaceAll(name, "/", "-"), ".")+"\n")
	}
	write(t, root+"/elsewhere/f.yaml", "domain: f\n")
	write(t, root+"/config.yaml", "domain: sibling\n")
	write(t, root+"/config.d/g", "domain: g\n")
	write(t, root+"/configs.yaml", "domain: other\n")
	link(t, root+"/elsewhere", dir+"/linked")
	link(t, root+"/nowhere", dir+"/lost.yaml")
	for _, pipe := range []string{dir + "/pipe", dir + ".pipe"} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		source  Source
		domains string
		skipped []string
	}{
		"a directory": {Source{Path: dir}, "b.conf deep-README.md deep-er-c.yaml plain", []string{
			"/.dir is not read: its name begins with a dot", "/.hidden.yaml is not read: its name begins with a dot",
			"/linked is not read: it is a link to a directory", "/lost.yaml is not read: it leads nowhere, or was removed meanwhile", "/pipe is not read: it is not a regular file",
		}},
		"dot files too": {Source{Path: dir, DotFiles: true}, "dir-d.yaml hidden.yaml b.conf deep-README.md deep-er-c.yaml plain", []string{
			"/linked is not read: it is a link to a directory", "/lost.yaml is not read: it leads nowhere, or was removed meanwhile", "/pipe is not read: it is not a regular file",
		}},
		"a directory with siblings": {Source{Path: root + "/config", Siblings: true, DotFiles: true}, "dir-d.yaml hidden.yaml b.conf deep-README.md deep-er-c.yaml plain g sibling", []string{
			"/linked is not read: it is a link to a directory", "/lost.yaml is not read: it leads nowhere, or was removed meanwhile", "/pipe is not read: it is not a regular file",
			".pipe is not read: it is not a regular file",
		}},
		"siblings of nothing": {Source{Path: root + "/configs", Siblings: true}, "other", nil},
	} {
		cfg, _, err := tt.source.Load()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := strings.Join(cfg.Domains(), " "); got != tt.domains {
			t.Errorf("%s: domains %s", name, got)
		}
		want := slices.Clone(tt.skipped)
		for i := range want {
			want[i] = dir + want[i]
		}
		if got := cfg.Warnings(); !slices.Equal(got, want) {
			t.Errorf("%s: warnings %q, want %q", name, got, want)
		}
	}
	if _, _, err := (Source{Path: root + "/nothing", Siblings: true}).Load(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("nothing at all: %v", err)
	}
	only := t.TempDir()
	write(t, only+"/.hidden", "domain: d\n")
	if _, _, err := (Source{Path: only}).Load(); err == nil || !strings.Contains(err.Error(), "has no file; "+only+"/.hidden is not read") {
		t.Errorf("nothing but a dot file: %v", err)
	}
}

type next struct {
	units int64
	err   error
}

func watch(t *testing.T, path string) <-chan next {
	t.Helper()
	said := make(chan next, 16)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	source := Source{Path: path}
	_, known, err := source.Load()
	if err != nil {
		t.Fatal(err)
	}
	source.Watch(ctx, known, func(cfg *Config, err error) {
		n := next{err: err}
		if err == nil {
			n.units = cfg.Rules()[0].Limits[0].Units
		}
		said <- n
	})
	return said
}

func expect(t *testing.T, said <-chan next, units int64) {
	t.Helper()
	select {
	case n := <-said:
		if n.err != nil && units > 0 || n.units != units {
			t.Errorf("it says %d units, error %v; want %d", n.units, n.err, units)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("the change to %d units was not noticed", units)
	}
}

func TestChangesOfAFileAreNoticed(t *testing.T) {
	file := t.TempDir() + "/limits.yaml"
	write(t, file, domainOf(1))
	said := watch(t, file)
	write(t, file, domainOf(2))
	expect(t, said, 2)
	write(t, file, "domain: [")
	expect(t, said, 0)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect(t, said, 0)
	write(t, file+".new", domainOf(3))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	expect(t, said, 3)
}

// A file may be written again after a look. Sash must use the contents that it compared, or it would miss the change.
func TestOnlyWhatWasSeenTwiceIsUsed(t *testing.T) {
	file := t.TempDir() + "/limits.yaml"
	write(t, file, domainOf(1))
	w := &watching{source: Source{Path: file}}
	_, w.last, _ = w.source.Load()
	var used []int64
	for i, units := range []int{1, 2, 3, 2, 2, 2, 1, 3, 3} {
		write(t, file, domainOf(units))
		w.look(func(cfg *Config, err error) {
			if err != nil {
				t.Fatal(i, err)
			}
			used = append(used, cfg.Rules()[0].Limits[0].Units)
		})
	}
	if !slices.Equal(used, []int64{2, 3}) {
		t.Errorf("it used %v", used)
	}
}

// A kubelet mounts a ConfigMap in a directory: files are links through ..data to the directory of their version, and so are
// directories, which `items` of a volume can make. It replaces all of them at once, by renaming ..data.
func TestAConfigMapThatAKubeletReplaces(t *testing.T) {
	dir := t.TempDir()
	w := &watching{source: Source{Path: dir}}
	for version, tt := range []struct {
		files map[string]string // the units of their rules
		said  string
	}{
		{map[string]string{"one": "1", "teams/two": "2", "teams/deep/three": "3"}, "one 1 teams/deep/three 3 teams/two 2 "},
		{map[string]string{"one": "1", "teams/two": "20", "teams/deep/three": "30"}, "one 1 teams/deep/three 30 teams/two 20 "},
		{map[string]string{"one": "10", "teams/two": "many", "teams/deep/three": "30"}, dir + "/teams/two:2: "},
		{map[string]string{"one": "10", "teams/two": "200", "later/four": "4"}, "later/four 4 one 10 teams/two 200 "},
	} {
		current, said := "..v"+strconv.Itoa(version), ""
		for name, units := range tt.files {
			write(t, filepath.Join(dir, current, name), "domain: "+name+"\ndescriptors: [{key: k, limits: ["+units+"/1h]}]\n")
		}
		link(t, current, dir+"/..data")
		for name := range tt.files {
			top, _, _ := strings.Cut(name, "/")
			link(t, "..data/"+top, dir+"/"+top)
		}
		all, _ := os.ReadDir(dir)
		for _, e := range all { // what the version does not have
			if _, err := os.Stat(filepath.Join(dir, e.Name())); err != nil || e.IsDir() && e.Name() != current {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
		for range 2 {
			w.look(func(cfg *Config, err error) {
				if err != nil {
					said = err.Error()
					return
				}
				for _, r := range cfg.Rules() {
					said += r.Domain + " " + strconv.FormatInt(r.Limits[0].Units, 10) + " "
				}
				said += strings.Join(cfg.Warnings(), "")
			})
		}
		if !strings.HasPrefix(said, tt.said) || len(said) > len(tt.said) && version != 2 {
			t.Errorf("version %d: it says %q, want %q", version, said, tt.said)
		}
	}
}
