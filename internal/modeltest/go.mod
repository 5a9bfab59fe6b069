module example.com/sash/internal/modeltest

go 1.26

require example.com/sash v0.0.0

replace example.com/sash => ../..
