module example.com/sash/denials

go 1.26.0

replace example.com/sash => ../

require (
	example.com/sash v0.0.0-00010101000000-000000000000
	github.com/maypok86/otter/v2 v2.4.0
)
