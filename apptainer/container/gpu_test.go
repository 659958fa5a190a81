package container_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver/drivertest"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// withDriver is a preparation of a host (see startOnHost) that gives it a driver of NVIDIA, in a
// directory that its dynamic linker knows.
func withDriver(tb testing.TB) string {
	tb.Helper()
	root := userDir(tb)
	for _, soname := range []string{"libcuda.so.1", "libnvidia-ml.so.1", "libGL.so.1", "libEGL.so.1", "libcudart.so.12"} {
		drivertest.Write(tb, root, "opt/driver/"+soname, drivertest.Library(tb, soname), 0o755)
	}
	drivertest.Cache(tb, root, "new", "/opt/driver")
	drivertest.Write(tb, root, "bin/nvidia-smi", "#!/bin/sh\necho the host\\'s nvidia-smi \"$@\"\n", 0o755)
	for _, name := range []string{"opt/driver/libcuda.so.1", "bin/nvidia-smi"} { // their modes allow writing
		must(tb, os.Chmod(filepath.Join(root, name), 0o777))
	}
	return strings.NewReplacer("ROOT", root).Replace(
		"mount --bind ROOT/opt /opt; mount --bind ROOT/bin /usr/local/bin; mount --bind ROOT/etc/ld.so.cache /etc/ld.so.cache")
}

// gpuImage returns an image like Debian's, with its own libGL.
func gpuImage(tb testing.TB, config v1.Config) string {
	tb.Helper()
	own := tb.TempDir()
	drivertest.Write(tb, own, "usr/lib/x86_64-linux-gnu/libGL.so.1", drivertest.Library(tb, "libGL.so.1"), 0o755)
	drivertest.Cache(tb, own, "new", "/usr/lib/x86_64-linux-gnu")
	cache, err := os.ReadFile(filepath.Join(own, "etc/ld.so.cache"))
	must(tb, err)
	return sif(tb, config, append(smallRoot(tb),
		imagetest.Directory("usr/lib"), imagetest.Directory("usr/lib/x86_64-linux-gnu"), imagetest.Directory("usr/lib/aarch64-linux-gnu"),
		imagetest.Regular("etc/ld.so.cache", string(cache)))...)
}

// Apptainer's own --nv makes no links in the linker's default directories, so a command without
// LD_LIBRARY_PATH finds the driver only with the built-in runtime.
func TestGPUsDriverIsTheHosts(t *testing.T) {
	t.Parallel()
	image := gpuImage(t, v1.Config{Env: []string{"PATH=/bin:/usr/bin", "LD_LIBRARY_PATH=/opt/toolkit/lib"}})
	const (
		show = `
echo $LD_LIBRARY_PATH
nvidia-smi -L
LD_PRELOAD=libcuda.so.1 cat /proc/self/maps | grep -c /libcuda.so.1
for f in /.singularity.d/libs/libcuda.so.1 /usr/bin/nvidia-smi; do (echo spoiled >>$f) 2>/dev/null && echo "wrote $f"; done
`
		shown     = "/opt/toolkit/lib:/.singularity.d/libs\nthe host's nvidia-smi -L\n1\n"
		showMore  = "ls /.singularity.d/libs; unset LD_LIBRARY_PATH; LD_PRELOAD=libnvidia-ml.so.1 cat /proc/self/maps | grep -c /libnvidia-ml.so.1; ls /opt /usr/local 2>/dev/null\n"
		shownMore = "libEGL.so.1\nlibcuda.so.1\nlibnvidia-ml.so.1\n1\n"
	)
	for name, tt := range map[string]struct {
		find          func(testing.TB) testRuntime
		command, want string
	}{
		"builtin":   {func(testing.TB) testRuntime { return testRuntime{} }, show + showMore, shown + shownMore},
		"apptainer": {apptainerRuntime, show, shown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tt.find(t).startOnHost(t, withDriver(t), container.Container{SIF: image, GPUVendor: gpudriver.NVIDIA, ShellCommand: tt.command + "true"})
			if answer := r.wait(); answer.Error != "" || r.output() != tt.want {
				t.Errorf("%+v with output %q, want %q", answer, r.output(), tt.want)
			}
		})
	}
}

// The device files of GPUs are in /dev and in directories below it.
func TestDevicesOfGPUsAreShownWhereTheyLie(t *testing.T) {
	t.Parallel()
	made := []string{"/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap2", "/dev/dri/renderD129", "/dev/kfd"}
	prepare := withoutFuse + "; mkdir /dev/nvidia-caps /dev/dri"
	for _, device := range append(made, "/dev/nvidia0", "/dev/dri/renderD128") {
		prepare += "; touch " + device + "; mount --bind /dev/zero " + device
	}
	r := startOnHost(t, prepare, container.Container{
		SIF: shellImage(t), Devices: made, ShellCommand: "ls -d /dev/nvidia* /dev/kfd /dev/nvidia*/* /dev/dri/*; for d in " + strings.Join(made, " ") + "; do test -c $d && : <$d || echo no $d; done",
	})
	answer := r.wait()
	want := "/dev/dri/renderD129\n/dev/kfd\n/dev/nvidia-caps\n/dev/nvidia-caps/nvidia-cap2\n/dev/nvidia1\n/dev/nvidiactl\n"
	lines := strings.Split(strings.TrimSpace(r.output()), "\n")
	slices.Sort(lines)
	if got := strings.Join(slices.Compact(lines), "\n") + "\n"; answer.Error != "" || got != want {
		t.Errorf("%+v with output %q, want %q", answer, got, want)
	}
}

func TestHostWithoutDriverShowsNothingOfOne(t *testing.T) {
	t.Parallel()
	c := container.Container{SIF: shellImage(t), ShellCommand: "ls -A /.singularity.d/libs 2>/dev/null; echo ${LD_LIBRARY_PATH-unset}"}
	r := startOnHost(t, withDriver(t), c)
	if answer := r.wait(); answer.Error != "" || r.output() != "unset\n" {
		t.Errorf("without GPUs: %+v with output %q", answer, r.output())
	}
	c.GPUVendor = gpudriver.NVIDIA
	r = startOnHost(t, "mount -t tmpfs none /etc", c)
	if answer := r.wait(); answer.Error != "" || r.output() != "unset\n" {
		t.Errorf("without a driver: %+v with output %q", answer, r.output())
	}
}

// The driver's program is found with any PATH of the image.
func TestGPUsProgramsAreInThePath(t *testing.T) {
	t.Parallel()
	r := startOnHost(t, withDriver(t), container.Container{SIF: shellImage(t), GPUVendor: gpudriver.NVIDIA, Args: []string{"nvidia-smi"}})
	if answer := r.wait(); answer.Error != "" || r.output() != "the host's nvidia-smi\n" {
		t.Errorf("%+v with output %q", answer, r.output())
	}
}
