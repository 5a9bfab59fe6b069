module example.com/sash

go 1.26.0
