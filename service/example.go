// Package service is the root of the module that makes the command sash: see cmd/sash.
package service

import _ "embed" // for Example

// Example is the configuration that sash serve starts with when it is given none.
//
//go:embed example.yaml
var Example []byte
