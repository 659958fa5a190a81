package gpudriver_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver"
	"github.com/cl-slurm/cl-slurm/apptainer/gpudriver/drivertest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// nvidiaHost returns a host with a driver and many other files.
func nvidiaHost(tb testing.TB, format string) (root string) {
	tb.Helper()
	root = tb.TempDir()
	for file, soname := range map[string]string{
		"usr/lib64/libcuda.so.580.1":                "libcuda.so.1",
		"usr/lib64/libnvidia-ml.so.580.1":           "libnvidia-ml.so.1",
		"usr/lib64/libnvidia-glcore.so.580.1":       "libnvidia-glcore.so.580.1",
		"usr/lib64/libGL.so.1.7.0":                  "libGL.so.1",
		"usr/lib64/libnvidia-egl-gbm-tools.so.1":    "libnvidia-egl-gbm-tools.so.1",
		"usr/lib64/libc.so.6":                       "libc.so.6",
		"usr/lib64/libcudart.so.12":                 "libcudart.so.12",
		"opt/other/libcuda.so.1":                    "libcuda.so.1",
		"usr/local/nvidia/lib64/libnvidia-cfg.so.1": "libnvidia-cfg.so.1",
		"usr/local/nvidia/lib64/libnvidia-ml.so.1":  "libnvidia-ml.so.1",
	} {
		drivertest.Write(tb, root, file, drivertest.Library(tb, soname), 0o755)
	}
	drivertest.Write(tb, root, "usr/lib32/libnvidia-tls.so.580.1", drivertest.ForeignLibrary(tb, "libnvidia-tls.so.580.1"), 0o755)
	for _, name := range []string{"usr/bin/nvidia-smi", "usr/sbin/nvidia-persistenced", "usr/bin/nvidia-settings"} {
		drivertest.Write(tb, root, name, "#!/bin/sh\n", 0o755)
	}
	drivertest.Write(tb, root, "usr/bin/nvidia-debugdump", "not to be run", 0o644)
	for _, name := range []string{"usr/share/vulkan/icd.d/nvidia_icd.json", "usr/share/vulkan/icd.d/radeon_icd.json"} {
		drivertest.Write(tb, root, name, "{}", 0o644)
	}
	if format != "" {
		drivertest.Cache(tb, root, format, "/usr/lib64", "/opt/other", "/usr/lib32")
	}
	return root
}

func TestDriverIsWhatApptainerShowsOfIt(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for _, format := range []string{"new", "compat"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			root := nvidiaHost(t, format)
			socket := filepath.Join(root, "run/nvidia-persistenced/socket")
			if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mknod(socket, syscall.S_IFSOCK|0o666, 0); err != nil {
				t.Fatal(err)
			}
			got, err := gpudriver.Host{Root: root}.Find(gpudriver.NVIDIA)
			if err != nil {
				t.Fatal(err)
			}
			want := gpudriver.Driver{
				Libraries: []gpudriver.Library{
					{Name: "libGL.so.1", Path: root + "/usr/lib64/libGL.so.1", Common: true},
					{Name: "libcuda.so.1", Path: root + "/usr/lib64/libcuda.so.1"},
					{Name: "libnvidia-cfg.so.1", Path: root + "/usr/local/nvidia/lib64/libnvidia-cfg.so.1"},
					{Name: "libnvidia-glcore.so.580.1", Path: root + "/usr/lib64/libnvidia-glcore.so.580.1"},
					{Name: "libnvidia-ml.so.1", Path: root + "/usr/lib64/libnvidia-ml.so.1"},
				},
				Programs: []string{root + "/usr/bin/nvidia-smi", root + "/usr/sbin/nvidia-persistenced"},
				Files: []gpudriver.File{
					{Path: root + "/usr/share/vulkan/icd.d/nvidia_icd.json", Name: "/usr/share/vulkan/icd.d/nvidia_icd.json"},
					{Path: socket, Name: "/run/nvidia-persistenced/socket"},
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("driver (-want +got):\n%s", diff)
			}
		})
	}
}

func TestROCmIsTheImagesBeforeTheHosts(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	drivertest.Write(t, root, "usr/lib64/libdrm_amdgpu.so.1", drivertest.Library(t, "libdrm_amdgpu.so.1"), 0o755)
	drivertest.Write(t, root, "usr/lib64/libcuda.so.1", drivertest.Library(t, "libcuda.so.1"), 0o755)
	drivertest.Write(t, root, "opt/rocm/bin/rocminfo", "#!/bin/sh\n", 0o755)
	drivertest.Cache(t, root, "new", "/usr/lib64")
	got, err := gpudriver.Host{Root: root}.Find(gpudriver.AMD)
	want := gpudriver.Driver{
		Libraries: []gpudriver.Library{{Name: "libdrm_amdgpu.so.1", Path: root + "/usr/lib64/libdrm_amdgpu.so.1", Common: true}},
		Programs:  []string{root + "/opt/rocm/bin/rocminfo"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("driver, %v (-want +got):\n%s", err, diff)
	}
}

func TestHostWithoutDriverOrCacheHasNone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if got, err := (gpudriver.Host{Root: root}).Find(gpudriver.NVIDIA); err != nil || !cmp.Equal(got, gpudriver.Driver{}) {
		t.Errorf("an empty host has %+v, %v", got, err)
	}
	root = nvidiaHost(t, "")
	if got, err := (gpudriver.Host{Root: root}).Find(gpudriver.NVIDIA); err != nil || len(got.Libraries) != 2 {
		t.Errorf("a host without a cache has %+v, %v; want what lies in the driver's own directory", got, err)
	}
	drivertest.Write(t, root, "etc/ld.so.cache", "nonsense", 0o644)
	if _, err := (gpudriver.Host{Root: root}).Find(gpudriver.NVIDIA); err == nil || !strings.Contains(err.Error(), "not a cache of the dynamic linker") {
		t.Errorf("error %v", err)
	}
}

// The package lists this machine's own cache as ldconfig does.
func TestOwnCacheIsReadAsLdconfigPrintsIt(t *testing.T) {
	t.Parallel()
	cache, err := os.ReadFile("/etc/ld.so.cache")
	if err != nil {
		t.Skip(err)
	}
	var got []string
	for name := range gpudriver.Names(cache) {
		got = append(got, name)
	}
	slices.Sort(got)
	want := ldconfigPrints(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-ldconfig +read):\n%s", diff)
	}
}

func TestVersionsOfModuleAndLibraryAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version:  gcc version 12.2.0\n":                          "535.129.03",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build  (dvs-builder@U16)  Fri Aug 16 21:42:42 UTC 2024\nGCC version: 12\n": "560.35.03",
		"another text\n": "",
	} {
		root := t.TempDir()
		drivertest.Write(t, root, "proc/driver/nvidia/version", text, 0o444)
		if got := gpudriver.ModuleVersion(root); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		drivertest.Write(t, root, "sys/module/nvidia/version", "550.54.14\n", 0o444)
		if got := gpudriver.ModuleVersion(root); got != "550.54.14" {
			t.Errorf("%q: %q, in spite of /sys", text, got)
		}
	}
	if got := gpudriver.ModuleVersion(t.TempDir()); got != "" {
		t.Errorf("without a module: %q", got)
	}
	lib := filepath.Join(t.TempDir(), "libcuda.so.550.54.14")
	if err := os.WriteFile(lib, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(filepath.Dir(lib), "libcuda.so.1")
	if err := os.Symlink(lib, link); err != nil {
		t.Fatal(err)
	}
	d := gpudriver.Driver{Libraries: []gpudriver.Library{{Name: "libnvidia-ml.so.1", Path: lib}, {Name: "libcuda.so.1", Path: link}}}
	if got := d.Version(); got != "550.54.14" {
		t.Errorf("libcuda.so.1: %q", got)
	}
	if got := (gpudriver.Driver{}).Version(); got != "" {
		t.Errorf("without it: %q", got)
	}
}
