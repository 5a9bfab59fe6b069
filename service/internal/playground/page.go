//go:build !js

package playground

import (
	_ "embed"
)

// Page is the playground: an HTML page that needs no other files.
//
//go:embed playground.html
var Page []byte
