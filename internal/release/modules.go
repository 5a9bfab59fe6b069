package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A module is one go.mod of a repository.
type module struct {
	dir  string // from the root of the repository, with slashes; "." for the root module
	path string
	file *modfile.File
}

// published reports whether others can require the module.
func (m module) published() bool {
	return !strings.HasPrefix(m.dir, "internal/") && !strings.HasPrefix(m.dir, "examples/")
}

// tag returns the name of the Git tag that publishes a version of the module.
func (m module) tag(version string) string { return path.Join(m.dir, version) }

// A repository is a checkout of all modules.
type repository struct {
	root    string
	work    *modfile.WorkFile
	modules []module // the root module first
}

// load reads go.work and the go.mod of every module that it uses.
func load(root string) (*repository, error) {
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: run this in the root of a checkout", err)
	}
	r := &repository{root: root}
	if r.work, err = modfile.ParseWork(name, text, nil); err != nil {
		return nil, err
	}
	for _, use := range r.work.Use {
		dir := path.Clean(use.Path)
		name := filepath.Join(root, dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		r.modules = append(r.modules, module{dir: dir, path: file.Module.Mod.Path, file: file})
	}
	slices.SortFunc(r.modules, func(a, b module) int { return strings.Compare(a.dir, b.dir) }) // the root module is the first
	return r, nil
}

// published returns the modules that others can require, the root module first.
func (r *repository) published() []module {
	return slices.DeleteFunc(slices.Clone(r.modules), func(m module) bool { return !m.published() })
}

// own reports whether a module is one of the repository's.
func (r *repository) own(path string) bool {
	return slices.ContainsFunc(r.modules, func(m module) bool { return m.path == path })
}

// setVersion writes the version at which the modules require each other into every go.mod and into go.work, which joins
// the modules of that version to the checkout.
func (r *repository) setVersion(version string) error {
	for _, m := range r.modules {
		if err := r.setRequires(m.file, version); err != nil {
			return err
		}
		if err := write(m.file.Syntax); err != nil {
			return err
		}
	}
	for _, old := range slices.Clone(r.work.Replace) {
		if !r.own(old.Old.Path) || old.Old.Version == version {
			continue
		}
		if err := r.work.AddReplace(old.Old.Path, version, old.New.Path, ""); err != nil {
			return err
		}
		if err := r.work.DropReplace(old.Old.Path, old.Old.Version); err != nil {
			return err
		}
	}
	r.work.Cleanup()
	return write(r.work.Syntax)
}

// setRequires sets the version of each require line of a file that names a module of the repository.
func (r *repository) setRequires(file *modfile.File, version string) error {
	for _, require := range file.Require {
		if r.own(require.Mod.Path) {
			if err := file.AddRequire(require.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a go.mod or a go.work to where it was read.
func write(file *modfile.FileSyntax) error {
	return os.WriteFile(file.Name, modfile.Format(file), 0o644)
}
