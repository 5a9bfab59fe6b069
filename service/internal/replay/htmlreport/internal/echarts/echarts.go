// Package echarts holds the parts of Apache ECharts that the report draws with, bundled by `make charts` from npm's
// package at the version and hash of package-lock.json. Building Sash needs no npm: the bundle is embedded, compressed.
package echarts

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"
)

//go:embed echarts.min.js.gz
var compressed []byte

// Script returns the JavaScript. It defines the variable echarts and begins with a comment that contains the licenses.
var Script = sync.OnceValues(func() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return "", err
	}
	script, err := io.ReadAll(r)
	return string(script), err
})
