package replay

import (
	"fmt"
	"os"
)

// A spillFile is a temporary file of blocks. Reads may be concurrent.
type spillFile struct {
	file *os.File
	name string
	size int64
	kept bool // still has its name
}

// newSpillFile makes a file in a folder, or in [os.TempDir]. Where the system permits it, the file loses its name at once,
// so that nothing is left however the process ends.
func newSpillFile(folder string) (*spillFile, error) {
	file, err := os.CreateTemp(folder, "sash-replay-")
	if err != nil {
		return nil, fmt.Errorf("no temporary file for the requests beyond the memory: %w (TMPDIR names another folder)", err)
	}
	return &spillFile{file: file, name: file.Name(), kept: os.Remove(file.Name()) != nil}, nil
}

// write appends a block, and returns where it begins.
func (f *spillFile) write(data []byte) (int64, error) {
	offset := f.size
	if _, err := f.file.WriteAt(data, offset); err != nil {
		return 0, fmt.Errorf("after %d MB of requests beyond the memory: %w (let TMPDIR name a folder with more room, or allow more memory)", offset/1_000_000, err)
	}
	f.size += int64(len(data))
	return offset, nil
}

func (f *spillFile) read(into []byte, offset int64) error {
	if _, err := f.file.ReadAt(into, offset); err != nil {
		return fmt.Errorf("the temporary file of requests: %w", err)
	}
	return nil
}

func (f *spillFile) close() {
	_ = f.file.Close()
	if f.kept {
		_ = os.Remove(f.name)
	}
}
