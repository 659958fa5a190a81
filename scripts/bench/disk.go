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
	"os/exec"
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

// benchSharedDisk measures what stands between the server and the nodes: the cache,
// its filling, the collection of results, and staging on a whole site.
func benchSharedDisk(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp(testsite.Base, "bench-disk-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, part := range []func(context.Context, string) ([]figure, error){hits, fills, collections, staged} {
		figures, err := part(ctx, dir) // with an error, those that there are
		for _, f := range figures {
			err = errors.Join(err, f.print(out))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hits measures a hit, with its pin, in caches of three sizes. Each holds what
// it would after as many fills, but for the contents, which are empty files.
func hits(ctx context.Context, dir string) ([]figure, error) {
	var figures []figure
	base := 0.0
	for _, n := range []int{10, 10_000, 1_000_000} {
		place := filepath.Join(dir, "hits-"+strconv.Itoa(n))
		c, err := cache.Open(place, cache.Options{})
		if err != nil {
			return nil, err
		}
		if err := populate(place, n); err != nil {
			return nil, err
		}
		took, err := hitTime(ctx, c, n)
		if err != nil {
			return nil, err
		}
		f := figure{name: "disk/hit_" + strconv.Itoa(n), value: took * 1e3, unit: "ms", bar: 1, barText: "1"}
		if base == 0 {
			base = f.value
		} else {
			f.against, f.base = "hit_10", base
		}
		figures = append(figures, f)
		if err := os.RemoveAll(place); err != nil {
			return nil, fmt.Errorf("clear the cache: %w", err)
		}
	}
	return figures, nil
}

func benchKey(i int) cache.Key { return cache.Key{Kind: "bundle", ID: fmt.Sprintf("0x%032x", i)} }

// populate writes n entries as docs/cache.md says, without flushing them.
func populate(dir string, n int) error {
	for i := range 256 {
		if err := os.MkdirAll(filepath.Join(dir, benchKey(0).Kind, fmt.Sprintf("%02x", i)), 0o700); err != nil {
			return fmt.Errorf("populate: %w", err)
		}
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
	return group.Wait()
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

// hitTime is the median of many hits in a cache of n entries, all over it.
func hitTime(ctx context.Context, c *cache.Cache, n int) (float64, error) {
	random := rand.New(rand.NewPCG(1, 2))
	var took []float64
	for i := range 2000 {
		w := cache.Want{Key: benchKey(random.IntN(n)), Holder: cache.Holder("row-bench-" + strconv.Itoa(i%100))}
		start := time.Now()
		_, err := c.Get(ctx, w, func(context.Context, string) error { return errors.New("this is no hit") })
		took = append(took, time.Since(start).Seconds())
		if err != nil {
			return 0, err
		}
	}
	return median(took), nil
}

// diskPairs is how many runs of each side a median of throughput is taken of.
const diskPairs = 5

// fills measures the filling of the cache with an archive beside tar: the files
// alone, and with their flushing, which the cache never leaves out.
func fills(ctx context.Context, dir string) ([]figure, error) {
	archive := filepath.Join(dir, "archive.tar.gz")
	tree := filepath.Join(dir, "tree")
	size, err := makeTree(tree, 400, 2<<20)
	if err != nil {
		return nil, err
	}
	if err := program(ctx, "tar", "-C", tree, "-czf", archive, "."); err != nil {
		return nil, err
	}
	c, err := cache.Open(filepath.Join(dir, "fills"), cache.Options{})
	if err != nil {
		return nil, err
	}
	var ours, tar, flushed []float64
	for i := range diskPairs {
		if err := program(ctx, "sync"); err != nil {
			return nil, err
		}
		took, err := timed(func() error {
			_, err := c.Get(ctx, cache.Want{Key: benchKey(i)}, func(ctx context.Context, tmp string) error { return unpackFile(ctx, archive, tmp) })
			return err
		})
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
		to := filepath.Join(dir, "tar-"+strconv.Itoa(i))
		if err := errors.Join(program(ctx, "sync"), os.Mkdir(to, 0o700)); err != nil {
			return nil, err
		}
		took, err = timed(func() error { return program(ctx, "tar", "-C", to, "-xzf", archive) })
		tar = append(tar, took)
		flush, flushErr := timed(func() error { return program(ctx, "sync", "-f", to) })
		flushed = append(flushed, took+flush)
		if err := errors.Join(err, flushErr, os.RemoveAll(to)); err != nil {
			return nil, err
		}
	}
	rate := func(seconds []float64) float64 { return float64(size) / median(seconds) / 1e6 }
	return []figure{
		{name: "disk/fill", value: rate(ours), unit: "MB/s", against: "tar_x", base: rate(tar), bar: rate(tar) / 1.15, barText: "tar_x/1.15", atLeast: true},
		{name: "disk/fill_flushed", value: rate(ours), unit: "MB/s", against: "tar_x_and_sync", base: rate(flushed), bar: rate(flushed) / 1.15, barText: "tar_x_and_sync/1.15", atLeast: true},
	}, nil
}

func unpackFile(ctx context.Context, archive, tmp string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	_, err = tarstream.Unpack(ctx, f, root, tarstream.Limits{})
	return errors.Join(err, root.Close())
}

// nowhere takes results, and keeps none.
type nowhere struct{ results.Uploads }

func (nowhere) UploadContents(_ context.Context, _ string, _ client.UploadOptions, body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}

// collections measures the packing of results beside tar c | pigz.
func collections(ctx context.Context, dir string) ([]figure, error) {
	tree := filepath.Join(dir, "results")
	size, err := makeTree(tree, 400, 2<<20)
	if err != nil {
		return nil, err
	}
	collector := &results.Collector{Contents: nowhere{}, Now: time.Now}
	run := codalab.RunBundle{UUID: "0x00000000000000000000000000000001"}
	var ours, pigz []float64
	for range diskPairs {
		took, err := timed(func() error {
			_, err := collector.Collect(ctx, run, tree, spool.ResultsUpload, func(string) {})
			return err
		})
		if err != nil {
			return nil, err
		}
		ours = append(ours, took)
		took, err = timed(func() error { return program(ctx, "sh", "-c", `tar -C "$1" -c . | pigz -1 >/dev/null`, "sh", tree) })
		if err != nil {
			return nil, err
		}
		pigz = append(pigz, took)
	}
	rate := func(seconds []float64) float64 { return float64(size) / median(seconds) / 1e6 }
	return []figure{{
		name: "disk/collect", value: rate(ours), unit: "MB/s", against: "tar_c_pigz_1", base: rate(pigz), barText: "-", atLeast: true,
	}}, nil
}

// makeTree writes files of this size, which compress to about a half, and
// returns what they take together.
func makeTree(dir string, files, size int) (int64, error) {
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
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			return 0, fmt.Errorf("make files: %w", err)
		}
	}
	return int64(files) * int64(size), nil
}

func timed(do func() error) (float64, error) {
	start := time.Now()
	err := do()
	return time.Since(start).Seconds(), err
}

func program(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, out)
	}
	return nil
}
