package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// transfer is the usage of one upload and of the download of the same data.
type transfer struct{ up, down usage }

// benchLargeTransfer measures the upload and the download of one file of 2 GB.
func benchLargeTransfer(ctx context.Context, dir string) {
	size := int64(ofSize(2e9))
	file := filepath.Join(dir, "large.bin")
	makeLargeFile(file, size)
	name := fmt.Sprintf("%dmb", size/1e6)
	if size%1e9 == 0 {
		name = fmt.Sprintf("%dgb", size/1e9)
	}
	benchTransfer(ctx, dir, name, file, func(received string) bool { return must(os.Stat(received)).Size() == size })
}

// benchSmallTransfer measures the upload and the download of a directory of 100,000 small files.
func benchSmallTransfer(ctx context.Context, dir string) {
	const size = 2048
	files := ofSize(100_000)
	tree := filepath.Join(dir, "tree")
	makeFiles(tree, files, size)
	benchTransfer(ctx, dir, fmt.Sprintf("%d_files", files), tree, func(received string) bool {
		n := 0
		check(filepath.WalkDir(received, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				n++
			}
			return err
		}))
		return n == files
	})
}

// benchTransfer measures the upload and the download of a file or directory. complete reports whether all
// of it has been received at a path.
func benchTransfer(ctx context.Context, dir, name, data string, complete func(received string) bool) {
	const rounds = 3
	b := newContentsBench(ctx, dir)
	defer b.end()
	r, to := researcher{b.address, "ann", dir}, filepath.Join(dir, "received")
	r.repeat(ctx, 1, "work", "-u") // signs in
	own, stock := alternately(r, rounds, func(cl clProgram) (t transfer) {
		upload := cl(ctx, "upload", data)
		var uuid bytes.Buffer
		upload.Stdout = &uuid
		t.up = measure(upload, dir)
		bundle := strings.TrimSpace(uuid.String())
		t.down = measure(cl(ctx, "download", bundle, "-o", to), dir)
		if !complete(to) {
			check(fmt.Errorf("not all of bundle %q was received", bundle))
		}
		check(os.RemoveAll(to))
		b.remove(ctx, bundle)
		return t
	})
	for _, way := range []struct {
		name string
		of   func(transfer) usage
	}{
		{"upload_" + name, func(t transfer) usage { return t.up }},
		{"download_" + name, func(t transfer) usage { return t.down }},
	} {
		besideStock(way.name, "s", own, stock, func(t transfer) float64 { return way.of(t).wall }).print()
		// CodaLab's own does not wait for the programs that it starts, so their time is not counted.
		besideStock(way.name+"_cpu", "s", own, nil, func(t transfer) float64 { return way.of(t).cpu }).print()
		besideStock(way.name+"_memory", "MB", own, stock, func(t transfer) float64 { return way.of(t).memory }).print()
	}
}
