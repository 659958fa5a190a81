package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/results"
)

// benchDisk measures the path between the server and the nodes: hits and fills of the
// cache, the collection of results, and staging on a whole site.
func benchDisk(ctx context.Context) {
	dir := must(os.MkdirTemp(testsite.Base, "bench-disk-"))
	defer func() { _ = os.RemoveAll(dir) }() // a leftover has no meaning
	benchHits(ctx, dir)
	benchFills(ctx, dir)
	benchCollection(ctx, dir)
	benchStaging(ctx, dir)
}

// benchHits measures a hit, with its pin, in caches of three sizes. The contents
// are empty files.
func benchHits(ctx context.Context, dir string) {
	base := figure{}
	for _, n := range []int{10, 10_000, 100_000} {
		place := filepath.Join(dir, "hits-"+strconv.Itoa(n))
		c := must(cache.Open(place, cache.Options{}))
		populate(place, n)
		f := figure{name: "disk/hit_" + strconv.Itoa(n), value: hitTime(ctx, c, n) * 1e3, unit: "ms", bar: 1}
		if n == 10 {
			base = f
		} else {
			f.against, f.base = "hit_10", base.value
		}
		f.print()
		check(os.RemoveAll(place))
	}
}

func benchKey(i int) cache.Key { return cache.Key{Kind: "bundle", ID: fmt.Sprintf("0x%032x", i)} }

// populate writes n entries as docs/contributors/cache.md describes, without flushing them.
func populate(dir string, n int) {
	for i := range 256 {
		check(os.MkdirAll(filepath.Join(dir, benchKey(0).Kind, fmt.Sprintf("%02x", i)), 0o700))
	}
	const writers = 4
	var group errgroup.Group
	for w := range writers {
		group.Go(func() error {
			for i := w; i < n; i += writers {
				if err := populateOne(dir, i); err != nil {
					return fmt.Errorf("populate: %w", err)
				}
			}
			return nil
		})
	}
	check(group.Wait())
}

func populateOne(dir string, i int) error {
	key := benchKey(i)
	sum := sha256.Sum256([]byte(key.Kind + "\x00" + key.ID))
	hash, token := hex.EncodeToString(sum[:]), fmt.Sprintf("%032x", i+1)
	shard := filepath.Join(dir, key.Kind, hash[:2])
	record, err := json.Marshal(map[string]any{"format": 1, "kind": key.Kind, "id": key.ID, "token": token, "digest": hash, "size": 0, "files": 1, "made": time.Unix(0, 0)})
	object := filepath.Join(shard, hash+"."+token)
	return errors.Join(err,
		os.Mkdir(object, 0o700), os.WriteFile(filepath.Join(object, "content"), nil, 0o600),
		os.WriteFile(filepath.Join(shard, hash+".json"), record, 0o600),
		os.WriteFile(filepath.Join(dir, "sizes", hash+"."+token+"~512~"), nil, 0o600))
}

// hitTime is the median of many hits all over a cache of n entries.
func hitTime(ctx context.Context, c *cache.Cache, n int) float64 {
	random := rand.New(rand.NewPCG(1, 2))
	var took []float64
	for i := range 2000 {
		w := cache.Want{Key: benchKey(random.IntN(n)), Holder: cache.Holder("row-bench-" + strconv.Itoa(i%100))}
		took = append(took, seconds(func() {
			must(c.Get(ctx, w, func(context.Context, string) error { return errors.New("this is no hit") }))
		}))
	}
	return median(took)
}

// A median of throughput is of diskPairs runs of each side.
const diskPairs = 3

// benchFills compares the filling of the cache with tar, both without tar's flush to the
// disk and with it. The cache always flushes.
func benchFills(ctx context.Context, dir string) {
	archive, files := filepath.Join(dir, "archive.tar.gz"), filepath.Join(dir, "tree")
	size := makeFiles(files, 200, 2<<20)
	program(ctx, "tar", "-C", files, "-czf", archive, ".")
	c := must(cache.Open(filepath.Join(dir, "fills"), cache.Options{}))
	var ours, tar, flushed []float64
	for i := range diskPairs {
		program(ctx, "sync")
		ours = append(ours, seconds(func() {
			must(c.Get(ctx, cache.Want{Key: benchKey(i)}, func(ctx context.Context, tmp string) error { return unpack(ctx, archive, tmp) }))
		}))
		to := filepath.Join(dir, "tar-"+strconv.Itoa(i))
		check(os.Mkdir(to, 0o700))
		program(ctx, "sync")
		took := seconds(func() { program(ctx, "tar", "-C", to, "-xzf", archive) })
		tar = append(tar, took)
		flushed = append(flushed, took+seconds(func() { program(ctx, "sync", "-f", to) }))
		check(os.RemoveAll(to))
	}
	rate := func(took []float64) float64 { return size / median(took) }
	figure{name: "disk/fill", value: rate(ours), unit: "MB/s", against: "tar_x", base: rate(tar), bar: rate(tar) / 1.15, barText: "tar_x/1.15", atLeast: true}.print()
	figure{
		name: "disk/fill_flushed", value: rate(ours), unit: "MB/s", against: "tar_x_and_sync", base: rate(flushed),
		bar: rate(flushed) / 1.15, barText: "tar_x_and_sync/1.15", atLeast: true,
	}.print()
}

func unpack(ctx context.Context, archive, tmp string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	_, err = tarstream.Unpack(ctx, f, root, tarstream.Limits{})
	return errors.Join(err, root.Close())
}

// nowhere is a server that keeps no results.
type nowhere struct{ results.Uploads }

func (nowhere) UploadContents(_ context.Context, _ string, _ client.UploadOptions, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// benchCollection compares the packing of results with tar c | pigz.
func benchCollection(ctx context.Context, dir string) {
	files := filepath.Join(dir, "results")
	size := makeFiles(files, 200, 2<<20)
	collector := &results.Collector{Contents: nowhere{}, Now: time.Now}
	run := codalab.RunBundle{UUID: "0x00000000000000000000000000000001"}
	var ours, pigz []float64
	for range diskPairs {
		ours = append(ours, seconds(func() { must(collector.Collect(ctx, run, files, spool.ResultsUpload, func(string) {})) }))
		pigz = append(pigz, seconds(func() { program(ctx, "sh", "-c", `tar -C "$1" -c . | pigz -1 >/dev/null`, "sh", files) }))
	}
	figure{name: "disk/collect", value: size / median(ours), unit: "MB/s", against: "tar_c_pigz_1", base: size / median(pigz)}.print()
}

// makeFiles writes files of this size, which compress to about a half, and returns
// their MB.
func makeFiles(dir string, files, size int) float64 {
	random := rand.New(rand.NewPCG(3, 4))
	data := make([]byte, size)
	for i := range files {
		for at := 0; at < len(data); at += 8 {
			v := random.Uint64()
			for b := range 8 {
				data[at+b] = "0123456789abcdef"[v>>(4*b)&15]
			}
		}
		path := filepath.Join(dir, fmt.Sprintf("d%02d", i%20), fmt.Sprintf("f%d", i))
		check(errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)))
	}
	return float64(files) * float64(size) / 1e6
}
