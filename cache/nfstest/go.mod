module github.com/cl-slurm/cl-slurm/cache/nfstest

go 1.26.0

require (
	github.com/cl-slurm/cl-slurm v0.0.0-00010101000000-000000000000
	github.com/hanwen/go-fuse/v2 v2.12.1
	golang.org/x/sys v0.49.0
)

require (
	filippo.io/edwards25519 v1.2.0 // indirect
	github.com/go-sql-driver/mysql v1.10.1 // indirect
	github.com/lib/pq v1.12.3 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

replace github.com/cl-slurm/cl-slurm => ../..
