module example.com/sash/stack

go 1.26.0

require (
	example.com/sash v0.1.0
	example.com/sash/denials v0.1.0
)

require github.com/maypok86/otter/v2 v2.4.0 // indirect
