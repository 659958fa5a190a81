package apptainer_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// An unpacker lists the tree that another program makes of an image. An error means that the
// program refuses the image.
type unpacker struct {
	name string
	// tree skips the test if the program is not installed.
	tree func(t *testing.T, img v1.Image) (map[string]string, error)
}

// unpackers are the programs to compare with. scripts/setup installs the first, so one always
// exists. Their shared files are removed with the test.
func unpackers(t *testing.T) []unpacker {
	t.Helper()
	daemon := containerd{start: sync.OnceValues(func() (string, error) { return startContainerd(t) })}
	return []unpacker{{"umoci", umociTree}, {"apptainer", apptainerTree}, {"containerd", daemon.tree}}
}

// added are the names that a conversion, or Apptainer's, adds at the root.
func added(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	switch first {
	case ".singularity.d", "singularity", "environment", ".run", ".exec", ".test", ".shell":
		return true
	}
	return false
}

// convertedTree converts an image and lists the SIF's tree without the names that a conversion
// adds.
func convertedTree(t *testing.T, img v1.Image) (map[string]string, error) {
	t.Helper()
	return treeBy(t, apptainer.Converter{}, img)
}

func treeBy(t *testing.T, c apptainer.Converter, img v1.Image) (map[string]string, error) {
	t.Helper()
	c.Source = imagetest.Source()
	reg, dir := imagetest.Start(t), t.TempDir()
	sif, root := filepath.Join(dir, "x.sif"), filepath.Join(dir, "root")
	if err := c.Convert(t.Context(), imagetest.Resolve(t, reg.Push(t, "x", img)), sif, nil); err != nil {
		return nil, err
	}
	config, err := sifconfig.Read(sif)
	must(t, err)
	program(t, "unsquashfs", "-quiet", "-no-progress", "-offset", strconv.FormatInt(config.Offset, 10), "-dest", root, sif)
	tree := listTree(t, root)
	maps.DeleteFunc(tree, func(name, _ string) bool { return added(name) })
	return tree, nil
}

// program runs a program that must succeed.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// attempt runs a program that may fail.
func attempt(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// ociLayout writes an image as an OCI layout, under the tag "x".
func ociLayout(t *testing.T, img v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "oci")
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	index, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = index.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "x"}))
	}
	must(t, err)
	return dir
}

func umociTree(t *testing.T, img v1.Image) (map[string]string, error) {
	t.Helper()
	testenv.ImageTool(t, "umoci")
	bundle := filepath.Join(t.TempDir(), "bundle")
	if err := attempt(t, exec.CommandContext(t.Context(), "umoci", "unpack", "--image", ociLayout(t, img)+":x", bundle)); err != nil {
		return nil, err
	}
	return listTree(t, filepath.Join(bundle, "rootfs")), nil
}

// apptainerTree makes Apptainer build a directory, and omits the names that it adds.
func apptainerTree(t *testing.T, img v1.Image) (map[string]string, error) {
	t.Helper()
	path := os.Getenv("CLTEST_APPTAINER")
	if path == "" {
		var err error
		if path, err = exec.LookPath("apptainer"); err != nil {
			t.Skip("needs Apptainer, in PATH or at $CLTEST_APPTAINER")
		}
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	cmd := exec.CommandContext(t.Context(), path, "--quiet", "build", "--disable-cache", "--no-https", "--sandbox", root, "docker://"+imagetest.Start(t).Push(t, "image:1", img))
	cmd.Env = append(os.Environ(), "HOME="+dir, "APPTAINER_TMPDIR="+dir)
	if err := attempt(t, cmd); err != nil {
		return nil, err
	}
	tree := listTree(t, root)
	maps.DeleteFunc(tree, func(name, _ string) bool { return added(name) })
	return tree, nil
}

// containerd is shared by all images of a test.
type containerd struct {
	start func() (socket string, err error) // the first time
}

// tree makes containerd unpack the image for overlayfs, as Docker does, each layer into its own
// directory, and lists the overlay.
func (c containerd) tree(t *testing.T, img v1.Image) (map[string]string, error) {
	t.Helper()
	for _, name := range []string{"containerd", "ctr"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs containerd")
		}
	}
	socket, err := c.start()
	must(t, err)
	dir := t.TempDir()
	archive, root := filepath.Join(dir, "oci.tar"), filepath.Join(dir, "merged")
	program(t, "tar", "-C", ociLayout(t, img), "-cf", archive, ".")
	must(t, os.Mkdir(root, 0o755))
	ctr := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "ctr", append([]string{"--address", socket, "--namespace", filepath.Base(filepath.Dir(dir)), "image"}, args...)...)
	}
	if err := attempt(t, ctr("import", "--base-name", "example.com/x", archive)); err != nil {
		return nil, err
	}
	must(t, attempt(t, ctr("mount", "example.com/x:x", root)))
	defer func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	return listTree(t, root), nil
}

// startContainerd starts a containerd for this test.
func startContainerd(t *testing.T) (socket string, err error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "containerd-")
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket = filepath.Join(dir, "s")
	config := filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[ttrpc]\naddress = %q\n", socket+".t")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	var log bytes.Buffer
	cmd := exec.Command("containerd", "--config", config, "--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--address", socket, "--log-level", "error")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // reports the signal
	})
	// Each try waits for the socket a little.
	for try := 1; exec.CommandContext(t.Context(), "ctr", "--address", socket, "version").Run() != nil; try++ {
		if try == 100 {
			return "", fmt.Errorf("containerd does not answer: %s", log.Bytes())
		}
	}
	return socket, nil
}
