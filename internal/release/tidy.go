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
// other modules of the repository from the checkout, by replace lines in a copy of go.mod: no proxy needs to have them.
func (r *repository) tidy(ctx context.Context, progress io.Writer) error {
	version, err := r.version()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "sash-tidy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	for _, m := range r.modules {
		fmt.Fprintln(progress, m.dir)
		if err := r.tidyModule(ctx, m, version, tmp); err != nil {
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

func (r *repository) tidyModule(ctx context.Context, m module, version, tmp string) error {
	dir := filepath.Join(r.root, m.dir)
	modCopy, sumCopy, sum := filepath.Join(tmp, "go.mod"), filepath.Join(tmp, "go.sum"), filepath.Join(dir, "go.sum")
	if err := copyIfThere(sum, sumCopy); err != nil {
		return err
	}
	for _, other := range r.modules {
		target, err := filepath.Abs(filepath.Join(r.root, other.dir))
		if err != nil {
			return err
		}
		if other.path == m.path {
			continue
		}
		if err := m.file.AddReplace(other.path, "", target, ""); err != nil {
			return err
		}
	}
	if err := os.WriteFile(modCopy, modfile.Format(m.file.Syntax), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"mod", "tidy", "-modfile=" + modCopy}, {"build", "-modfile=" + modCopy, "-o", os.DevNull, "./..."}} {
		if _, err := output(ctx, dir, []string{"GOWORK=off"}, "go", args...); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(modCopy)
	if err != nil {
		return err
	}
	tidied, err := modfile.Parse(filepath.Join(dir, "go.mod"), text, nil)
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
	if err := write(tidied.Syntax); err != nil {
		return err
	}
	return copyIfThere(sumCopy, sum)
}

// copyIfThere copies a file. When there is none, there is none at the target either.
func copyIfThere(from, to string) error {
	text, err := os.ReadFile(from)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.Remove(to); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
