module example.com/sash/replay

go 1.26.0

require (
	example.com/sash v0.1.0
	github.com/expr-lang/expr v1.17.8
	github.com/klauspost/compress v1.20.3
	github.com/ulikunitz/xz v0.5.17
)

require (
	example.com/sash/httplimit v0.1.0
	github.com/go-logfmt/logfmt v0.6.1
	github.com/ncruces/go-strftime v1.1.0
)
