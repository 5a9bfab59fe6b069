module example.com/sash/replay

go 1.26.0

require (
	example.com/sash v0.0.0
	github.com/expr-lang/expr v1.17.8
)

replace example.com/sash => ..
