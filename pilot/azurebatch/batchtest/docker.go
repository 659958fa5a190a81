package batchtest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Docker runs tasks in containers of a Docker engine, as Azure's nodes do: each with the options of its task, in a
// directory of its own on the node's disk. Their image has no programs. This machine's are bound into it, and our
// cl-worker.
type Docker struct {
	// Host is the engine's address, and Client the path of the program docker.
	Host, Client string
	// Worker is the path of cl-worker.
	Worker string
	// Dir is a directory of this machine for the disks of nodes.
	Dir string
}

// Image is the image of tasks.
const Image = "azurebatch/small:1"

// nodeRoot is the directory of tasks on a node ("Files and directories in Azure Batch").
const nodeRoot = "/mnt/batch/tasks/workitems"

// Prepare makes the image.
func (d Docker) Prepare(tb testing.TB) {
	tb.Helper()
	c := d.command(tb.Context(), "import", "-", Image)
	c.Stdin = bytes.NewReader(smallRoot())
	if out, err := c.CombinedOutput(); err != nil {
		tb.Fatalf("import an image: %v: %s", err, out)
	}
}

// Command returns a container that runs words with a task's options.
func (d Docker) Command(ctx context.Context, image string, options, env, words []string) *exec.Cmd {
	args := []string{"run", "--rm", "--network", "host", "--volume", "/usr:/usr:ro", "--volume", d.Worker + ":/opt/cl-worker:ro", "--env", "PATH=/opt:/usr/bin:/usr/sbin"}
	for _, v := range env {
		args = append(args, "--env", v)
	}
	args = append(append(args, options...), image)
	return d.command(ctx, append(args, words...)...)
}

func (d Docker) command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, d.Client, args...)
	c.Env = append(os.Environ(), "DOCKER_HOST="+d.Host)
	return c
}

// Execute runs a task. A task that is ended gets TERM.
func (d Docker) Execute(ctx context.Context, r Run) int {
	words, err := Split(r.CommandLine)
	if err == nil {
		err = os.MkdirAll(filepath.Join(d.Dir, r.Node, r.ID), 0o755)
	}
	if err != nil {
		_, _ = fmt.Fprintln(r.Stderr, err)
		return 127
	}
	name := r.ID + "_" + r.Node
	options := append(strings.Fields(r.RunOptions), "--name", name, "--volume", filepath.Join(d.Dir, r.Node)+":"+nodeRoot, "--workdir", filepath.Join(nodeRoot, r.ID))
	c := d.Command(ctx, r.Image, options, r.Env, words)
	c.Stdout, c.Stderr = r.Stdout, r.Stderr
	c.Cancel = func() error {
		if errors.Is(context.Cause(ctx), errNodeLost) {
			return d.command(context.WithoutCancel(ctx), "kill", name).Run()
		}
		return c.Process.Signal(syscall.SIGTERM) // docker passes it on
	}
	c.WaitDelay = killAfter
	err = c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		_, _ = fmt.Fprintln(r.Stderr, err)
		return 127
	}
	return 0
}

// smallRoot returns a root directory without programs.
func smallRoot() []byte {
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, name := range []string{"dev", "etc", "opt", "proc", "run", "sys", "usr"} { // slirp4netns needs /run
		_ = w.WriteHeader(&tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}) // memory takes all
	}
	_ = w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777})
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		_ = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: "usr/" + name})
	}
	const users = "root:x:0:0:root:/:/bin/sh\n"
	_ = w.WriteHeader(&tar.Header{Name: "etc/passwd", Mode: 0o644, Size: int64(len(users))})
	_, _ = w.Write([]byte(users))
	_ = w.Close()
	return data.Bytes()
}
