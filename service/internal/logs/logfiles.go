package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"example.com/sash/service/internal/replay/accesslog"
)

// A logFile is one file of a log, or standard input, and what came of it.
type logFile struct {
	Name string `json:"name"`
	// Requests counts the lines that were read, and Broken the others.
	Requests int64 `json:"requests"`
	Broken   int64 `json:"broken"`
	// Damaged says why the file was not read to its end.
	Damaged string `json:"damaged,omitempty"`
	// Skipped says why the file was not read at all.
	Skipped string `json:"skipped,omitempty"`

	found bool  // in a directory or by a pattern: it may be something else than a log
	first int64 // the time of the first request
}

const stdin = "-"

// name returns the file as messages name it.
func (f *logFile) name() string {
	if f.Name == stdin {
		return "standard input"
	}
	return f.Name
}

// files returns the files that arguments name, those with the earliest requests first: rotated files may be given in any
// order. A directory stands for the files in it, and a pattern for those that match it.
func (l *logs) files(cmd *cobra.Command, args []string, opts *accesslog.Options) ([]*logFile, error) {
	if len(args) == 0 {
		if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
			return nil, fmt.Errorf("no log: name files, a directory or a pattern, or send a log to standard input (see %s --help)", cmd.CommandPath())
		}
		args = []string{stdin}
	}
	var all []*logFile
	for _, arg := range args {
		files, err := expand(arg)
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
	}
	once(all)
	for _, f := range all {
		if f.Skipped == "" && len(all) > 1 {
			f.begin(cmd.Context(), opts)
		}
	}
	slices.SortStableFunc(all, func(a, b *logFile) int { return cmp.Compare(a.first, b.first) })
	return all, nil
}

// expand returns the files that one argument names.
func expand(arg string) ([]*logFile, error) {
	if arg == stdin {
		return []*logFile{{Name: stdin}}, nil
	}
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		return inDirectory(arg)
	case err == nil:
		return []*logFile{{Name: arg}}, nil
	case !errors.Is(err, fs.ErrNotExist) || !strings.ContainsAny(arg, "*?["):
		return nil, err
	}
	names, err := filepath.Glob(arg)
	if err != nil {
		return nil, fmt.Errorf("%s: no such file, and as a pattern: %w", arg, err)
	}
	var files []*logFile
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && !info.IsDir() {
			files = append(files, foundFile(name))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no file has such a name", arg)
	}
	return files, nil
}

// inDirectory returns the files of a directory, without those of directories in it and those whose name begins with a dot.
func inDirectory(dir string) ([]*logFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*logFile
	for _, entry := range entries {
		if !entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, foundFile(filepath.Join(dir, entry.Name())))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: the directory has no files (those of directories in it are not read)", dir)
	}
	return files, nil
}

// foundFile returns a file that was found, and skips pipes, sockets and devices: to open one may wait forever.
func foundFile(name string) *logFile {
	f := &logFile{Name: name, found: true}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f.Skipped = "it is not a regular file"
	}
	return f
}

// packedNames end the names of compressed files.
var packedNames = []string{".gz", ".bz2", ".xz", ".zst"}

// once skips files that are there twice: under two names, or packed beside what is in them.
func once(files []*logFile) {
	known := make(map[string]bool, len(files))
	for _, f := range files {
		known[absolute(f.Name)] = false
	}
	for _, f := range files {
		name := absolute(f.Name)
		plain := strings.TrimSuffix(name, filepath.Ext(name))
		_, beside := known[plain]
		switch {
		case known[name]:
			f.Skipped = "it is named twice"
		case f.found && beside && slices.Contains(packedNames, filepath.Ext(name)):
			f.Skipped = filepath.Base(plain) + " is there too, unpacked"
		}
		known[name] = true
	}
}

func absolute(name string) string {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	return name
}

var errBegun = errors.New("begun")

// begin sets the time of the first request. Whatever is wrong with the file is found when it is read.
func (f *logFile) begin(ctx context.Context, opts *accesslog.Options) {
	if info, err := os.Stat(f.Name); err != nil || !info.Mode().IsRegular() { // reading a pipe would take from it
		return
	}
	_, _ = f.read(ctx, nil, opts, func(r *accesslog.Record) error {
		f.first = r.Time
		return errBegun
	})
}

// read calls each for the records of a file.
func (f *logFile) read(ctx context.Context, in io.Reader, opts *accesslog.Options, each func(*accesslog.Record) error) (accesslog.Stats, error) {
	if f.Name == stdin {
		pipe := untilEnded(ctx, in)
		defer func() { _ = pipe.Close() }()
		return accesslog.Read(ctx, f.name(), pipe, opts, each)
	}
	file, err := openUntilEnded(ctx, f.Name)
	if err != nil {
		return accesslog.Stats{}, err
	}
	defer func() { _ = file.Close() }()
	var from io.Reader = file
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		pipe := untilEnded(ctx, file)
		defer func() { _ = pipe.Close() }()
		from = pipe
	}
	return accesslog.Read(ctx, f.Name, from, opts, each)
}

// openUntilEnded opens a file, or fails when the context ends: a named pipe opens only when somebody writes. Its goroutine
// ends then, or with the process.
func openUntilEnded(ctx context.Context, name string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		file, err := os.Open(name)
		done <- opened{file, err}
	}()
	select {
	case o := <-done:
		return o.file, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// untilEnded returns a reader of a pipe that fails when the context ends, even while nobody writes. Close it. Its
// goroutine ends with the next bytes, the pipe or the process.
func untilEnded(ctx context.Context, from io.Reader) *io.PipeReader {
	read, write := io.Pipe()
	context.AfterFunc(ctx, func() { _ = write.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(write, from)
		_ = write.CloseWithError(err)
	}()
	return read
}
