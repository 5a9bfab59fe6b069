module example.com/sash/outgoing

go 1.26.0

require (
	example.com/sash v0.1.0
	github.com/dunglas/httpsfv v1.1.2
)
