package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// imageBench is what all images are measured with. Everything that is measured
// runs as the user researcher.
type imageBench struct {
	images    string // where they are kept, for the next time
	dir       string // of this run
	temp      string // in dir: a file system in memory, for temporary files
	self      string // a copy of this program that anyone may run
	apptainer string // or empty
	as        *syscall.Credential
}

// newImageBench takes root: it mounts a file system whose use tells what was
// written to it, by whichever process, and which costs each side the same.
func newImageBench() (*imageBench, error) {
	b := &imageBench{images: keptImages()}
	if err := os.MkdirAll(b.images, 0o755); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	if path, err := exec.LookPath(cmp.Or(os.Getenv("CLTEST_APPTAINER"), "apptainer")); err == nil {
		b.apptainer = path
	}
	var err error
	if b.as, err = researcher(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp(testsite.Base, "bench-images-run-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	b.temp, b.self = filepath.Join(b.dir, "tmp"), filepath.Join(b.dir, "bench")
	self, err := os.Executable()
	if err == nil { // both where make installs them
		err = program(context.Background(), "install", "-m", "0755", self, filepath.Join(filepath.Dir(self), "cl-worker"), b.dir)
	}
	err = errors.Join(err, os.Mkdir(b.temp, 0o700), os.Chmod(b.dir, 0o755), os.Chown(b.dir, int(b.as.Uid), int(b.as.Gid)))
	if err == nil {
		err = syscall.Mount("tmpfs", b.temp, "tmpfs", 0, "size=12g,mode=1777")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare: %w", err), os.RemoveAll(b.dir))
	}
	return b, nil
}

func (b *imageBench) close() error {
	return errors.Join(syscall.Unmount(b.temp, syscall.MNT_DETACH), os.RemoveAll(b.dir))
}

// researcher is the ordinary user who converts images.
func researcher() (*syscall.Credential, error) {
	u, err := user.Lookup("researcher")
	if err != nil {
		return nil, fmt.Errorf("who is researcher: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 31)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 31)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}

// command is a part of this program, or another program, as researcher.
func (b *imageBench) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + b.temp, "TMPDIR=" + b.temp, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.as}
	return cmd
}

// serve serves an image from a process of its own until stop is called.
func (b *imageBench) serve(ctx context.Context, kept string) (image string, stop func() error, err error) {
	cmd := exec.CommandContext(ctx, b.self, "serve", kept)
	cmd.Stderr = os.Stderr
	printed, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, fmt.Errorf("start the registry: %w", err)
	}
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		return cmd.Wait()
	}
	if image, err = imageName(printed); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return image, stop, nil
}

// compressedSize is how large the layers of a kept image are together.
func compressedSize(kept string) (int64, error) {
	index, err := layout.ImageIndexFromPath(kept)
	if err != nil {
		return 0, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return 0, err
	}
	img, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		return 0, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	var size int64
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return size, nil
}
