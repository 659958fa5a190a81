package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/filetree"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Collector sends results to the server as one stream, without a copy on any
// disk. It is safe for concurrent use.
type Collector struct {
	Contents Contents
	// Store is the server's own store, where this bridge shares its disk; nil
	// otherwise.
	Store *ServerStore
}

// Collect uploads a run's working directory, without the links to its
// dependencies and without what its exclude_patterns name; or moves it into the
// server's store, where the server shares that.
func (c *Collector) Collect(ctx context.Context, run codalab.RunBundle, dir string) error {
	if c.Store != nil && run.Location != nil {
		return c.Store.Move(ctx, run, dir)
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{What: "results", Err: fmt.Errorf("the working directory %s is gone", dir)}
	}
	if err != nil {
		return &Error{What: "results", Err: err, Retry: true}
	}
	defer func() { _ = root.Close() }() // only read
	err = c.upload(ctx, run, root)
	if errors.Is(err, fs.ErrPermission) {
		// The command was root where it ran and did not notice that it closed
		// a file to its owner.
		filetree.OpenUp(root)
		err = c.upload(ctx, run, root)
	}
	if errors.Is(err, fs.ErrPermission) {
		return &Error{What: "results", Err: err}
	}
	return err
}

func (c *Collector) upload(ctx context.Context, run codalab.RunBundle, root *os.Root) error {
	keep := exclusion(run)
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := tarstream.Pack(ctx, w, root, ".", tarstream.PackOptions{
			Exclude: func(below string, d fs.DirEntry) bool { return keep.excludes(root, below, d) },
		})
		_ = w.CloseWithError(err) // always nil: io.PipeWriter
		packed <- err
	}()
	// codalab/worker/worker.py: upload_bundle_contents
	err := c.Contents.UploadContents(ctx, run.UUID, client.UploadOptions{Filename: "bundle.tar.gz", Unpack: true}, r)
	_ = r.CloseWithError(errors.New("the upload ended")) // always nil: io.PipeReader
	if packErr := <-packed; packErr != nil && err == nil {
		err = packErr
	}
	return err
}

type excluded struct {
	links    map[string]bool
	whole    bool // some parent is seen at "."
	patterns []string
	prefix   string
}

func exclusion(run codalab.RunBundle) excluded {
	x := excluded{
		links:    map[string]bool{},
		patterns: run.Metadata.Strings("exclude_patterns"),
		prefix:   spool.DependenciesDir(run.UUID) + "/",
	}
	for _, d := range run.Dependencies {
		x.links[path.Clean(d.ChildPath)] = true
		x.whole = x.whole || path.Clean(d.ChildPath) == "."
	}
	return x
}

// excludes says whether an entry of the working directory is not a result: the
// link to a dependency, or what a pattern names. A pattern is that of a
// shell's, for the entry's name or for its path, as tar's --exclude has it.
func (x excluded) excludes(root *os.Root, below string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink != 0 && (x.whole || x.links[below]) {
		if target, err := root.Readlink(below); err == nil && strings.HasPrefix(target+"/", x.prefix) {
			return true
		}
	}
	for _, pattern := range x.patterns {
		for _, name := range []string{below, path.Base(below)} {
			if ok, err := path.Match(strings.TrimPrefix(pattern, "./"), name); err == nil && ok {
				return true
			}
		}
	}
	return false
}
