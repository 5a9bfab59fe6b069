package accesslog

import (
	"bytes"
	"errors"

	"github.com/go-logfmt/logfmt"
)

var errLogfmt = errors.New("not of the form key=value other=value")

// readLogfmt reads a line of key=value pairs.
func readLogfmt(line []byte) (object, error) {
	if bytes.IndexByte(line, '=') < 0 {
		return nil, errLogfmt
	}
	o := make(object)
	decoder := logfmt.NewDecoder(bytes.NewReader(line))
	for decoder.ScanRecord() {
		for decoder.ScanKeyval() {
			if value := decoder.Value(); len(value) > 0 {
				o[string(decoder.Key())] = string(value)
			}
		}
	}
	if decoder.Err() != nil {
		return nil, errLogfmt
	}
	return o, nil
}
