module example.com/sash/replay

go 1.26.0

replace example.com/sash => ..
