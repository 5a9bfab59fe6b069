module example.com/sash/httplimit

go 1.26.0

require (
	example.com/sash v0.1.0
	github.com/dunglas/httpsfv v1.1.2
)

require github.com/go-chi/chi/v5 v5.5.0
