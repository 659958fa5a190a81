package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// makeLake makes a directory with data that lies on the cluster's disk already.
func makeLake() (dir string, err error) {
	dir, err = os.MkdirTemp(testsite.Base, "demo-data-")
	if err != nil {
		return "", fmt.Errorf("make a directory for data: %w", err)
	}
	data := make([]byte, 256<<20)
	err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "corpus.bin"), data, 0o644))
	return dir, err
}

// linked runs on data that stays where it is: the file that the command reads
// is the very one.
func (d *demo) linked(ctx context.Context) error {
	d.say("\n# Data that lies on the cluster's disk is used where it lies, without a byte copied.")
	var file syscall.Stat_t
	if err := syscall.Stat(filepath.Join(d.lake, "corpus.bin"), &file); err != nil {
		return fmt.Errorf("look at the data: %w", err)
	}
	d.say("%s/corpus.bin: %d bytes, inode %d", d.lake, file.Size, file.Ino)
	return steps(
		func() error { return d.does(ctx, "upload", "--link", d.lake, "-n", "lake") },
		func() error {
			return d.does(ctx, "run", "in:lake", "wc -c < in/corpus.bin; ls -i in/corpus.bin", "-n", "onlake", "--request-queue", "cpu")
		},
		func() error { return d.does(ctx, "wait", "onlake") },
		func() error {
			return d.want(ctx, fmt.Sprintf("%d\n%d in/corpus.bin", file.Size, file.Ino), "cat", "onlake/stdout")
		},
		func() error { return d.notCopied(ctx, "lake") },
	)
}

// notCopied shows that the cache has nothing of a bundle.
func (d *demo) notCopied(ctx context.Context, bundle string) error {
	uuid, err := d.site.CL(ctx, "info", "-f", "uuid", bundle)
	if err != nil {
		return err
	}
	list, err := d.site.Run(ctx, filepath.Join(testsite.Base, "bin", "cl-bridge"), "cache", "ls", "--config", d.site.BridgeConfig())
	if err != nil {
		return err
	}
	if strings.Contains(list, uuid) {
		return fmt.Errorf("the cache has a copy of %s:\n%s", uuid, list)
	}
	d.say("cl-bridge cache ls: nothing of %s", uuid)
	return nil
}
