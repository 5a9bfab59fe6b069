module example.com/sash/internal/modeltest

go 1.26.0

require example.com/sash v0.1.0

require (
	example.com/sash/goredisstore v0.1.0
	github.com/anishathalye/porcupine v1.3.1
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.23.0
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
