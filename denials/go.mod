module example.com/sash/denials

go 1.26.0

require (
	example.com/sash v0.1.0
	github.com/maypok86/otter/v2 v2.4.0
)
