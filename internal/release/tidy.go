package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
)

// tidy runs go mod tidy in every module, and builds each as its users do, without the workspace. The go command takes the
// other modules of the repository from the checkout, by replace lines that go.mod has meanwhile: no proxy needs to have them.
func (r *repository) tidy(ctx context.Context, progress io.Writer) error {
	version, err := r.version()
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		fmt.Fprintln(progress, m.dir)
		if err := r.tidyModule(ctx, m, version); err != nil {
			return err
		}
	}
	return nil
}

// version returns the version at which the modules require each other: that of the replace lines of go.work.
func (r *repository) version() (string, error) {
	for _, replace := range r.work.Replace {
		if r.own(replace.Old.Path) {
			return replace.Old.Version, nil
		}
	}
	return "", errors.New("go.work has no replace line for a module of this repository")
}

// tidyModule leaves go.mod as it was after an error.
func (r *repository) tidyModule(ctx context.Context, m module, version string) (err error) {
	name, before := m.file.Syntax.Name, modfile.Format(m.file.Syntax)
	defer func() {
		if err != nil {
			err = errors.Join(err, os.WriteFile(name, before, 0o644))
		}
	}()
	for _, other := range r.modules {
		target, err := filepath.Abs(filepath.Join(r.root, other.dir))
		if err == nil && other.path != m.path {
			err = m.file.AddReplace(other.path, "", target, "")
		}
		if err != nil {
			return err
		}
	}
	if err := write(m.file.Syntax); err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", os.DevNull, "./..."}} {
		if _, err := output(ctx, filepath.Dir(name), []string{"GOWORK=off"}, "go", args...); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	tidied, err := modfile.Parse(name, text, nil)
	if err != nil {
		return err
	}
	for _, other := range r.modules {
		if err := tidied.DropReplace(other.path, ""); err != nil {
			return err
		}
	}
	if err := r.setRequires(tidied, version); err != nil {
		return err
	}
	tidied.Cleanup()
	return write(tidied.Syntax)
}
