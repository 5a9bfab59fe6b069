module example.com/sash/internal/bench

go 1.26

require example.com/sash v0.0.0

replace example.com/sash => ../..
