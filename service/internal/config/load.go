package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Source is the location of a configuration on disk.
type Source struct {
	// Path is a file, or a directory whose .yaml and .yml files are read in the order of their names. Files whose
	// names begin with a dot are ignored.
	Path string
	// Merge lets several files add descriptors to one domain.
	Merge bool
	// Defaults are the options of rules that do not name their own.
	Defaults Defaults
}

// Load reads and checks the configuration.
func (s Source) Load() (*Config, error) {
	files, err := s.read()
	if err != nil {
		return nil, err
	}
	return ParseBy(s.Defaults, s.Merge, files...)
}

// read returns the current files.
func (s Source) read() ([]File, error) {
	info, err := os.Stat(s.Path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	names := []string{s.Path}
	if info.IsDir() {
		if names, err = configFiles(s.Path); err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("reading the configuration: the directory %s has no .yaml or .yml file", s.Path)
		}
	}
	files := make([]File, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading the configuration: %w", err)
		}
		files[i] = File{Name: name, Text: text}
	}
	return files, nil
}

func configFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, ".") || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)) {
			continue
		}
		name = filepath.Join(dir, name)
		info, err := os.Stat(name) // a ConfigMap's files are symbolic links
		if errors.Is(err, os.ErrNotExist) {
			continue // it was removed in between
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}
