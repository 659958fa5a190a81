package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestVersionsSortAfterTheTagBefore(t *testing.T) {
	t.Parallel()
	for description, want := range map[string]string{
		"v1.2.3":                            "v1.2.3",
		"v1.2.3.dirty":                      "v1.2.3+dirty",
		"v1.2.3-rc.1":                       "v1.2.3-rc.1",
		"v1.2.3-4-g0123456789ab":            "v1.2.3+4.g0123456789ab",
		"v1.2.3-rc.1-4-g0123456789ab.dirty": "v1.2.3-rc.1+4.g0123456789ab.dirty",
	} {
		got := versionOf(description)
		if got != want {
			t.Errorf("%s: %s, want %s", description, got, want)
		}
		if !versions.MatchString(got) {
			t.Errorf("%s is no version", got)
		}
	}
}

// TestRelease builds a release for this machine twice: in another directory, of sources with
// other modes and times. It installs the packages into a small Debian.
func TestRelease(t *testing.T) { //nolint:paralleltest // it changes the umask
	testenv.Packages(t)
	first := buildCopy(t, "a", 0o022)
	second := buildCopy(t, filepath.Join("another", "place"), 0o077)
	if diff := cmp.Diff(read(t, filepath.Join(first, "SHA256SUMS")), read(t, filepath.Join(second, "SHA256SUMS"))); diff != "" {
		t.Errorf("two builds differ: %s", diff)
	}
	t.Logf("%s", read(t, filepath.Join(first, "SHA256SUMS")))
	makeSmallDebian(t)
	t.Run("deb", func(t *testing.T) { //nolint:paralleltest // as above
		testPackages(t, smallRoot(t), debs(t, first))
	})
	t.Run("rpm", func(t *testing.T) { //nolint:paralleltest // as above
		testPackages(t, smallRoot(t), rpms(t, first))
	})
}

const version = "v1.2.3"

// buildCopy builds a release from a copy of the sources and returns its directory.
func buildCopy(t *testing.T, name string, umask int) string {
	t.Helper()
	defer syscall.Umask(syscall.Umask(umask))
	source := filepath.Join(t.TempDir(), name)
	listed, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for file := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join("../..", file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed
		}
		to := filepath.Join(source, file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o777), os.WriteFile(to, content, 0o666))
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &release{
		source: source, out: filepath.Join(source, "dist"), version: version,
		platforms: []platform{{"linux", runtime.GOARCH}},
	}
	if err := r.askGit(t.Context(), "1764000000"); err != nil {
		t.Fatal(err)
	}
	if err := r.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.out
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// smallDebian is the archive of the smallest Debian with dpkg.
const smallDebian = "/var/tmp/cl-slurm/release/debian.tar"

// makeSmallDebian makes the archive, once on a machine.
func makeSmallDebian(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(smallDebian); err == nil {
		return
	}
	dir := filepath.Dir(smallDebian)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(dir, "making-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // a leftover has no meaning
	made := filepath.Join(tmp, "debian.tar")
	command(t, "mmdebstrap", "--quiet", "--variant=essential", "--format=tar", "--skip=output/dev", "bookworm", made)
	if err := os.Rename(made, smallDebian); err != nil {
		t.Fatal(err)
	}
}

// smallRoot returns the root of a small Debian.
func smallRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	command(t, "tar", "--numeric-owner", "-xf", smallDebian, "-C", root)
	dev := filepath.Join(root, "dev")
	null := filepath.Join(dev, "null")
	err := errors.Join(os.MkdirAll(dev, 0o755), syscall.Mknod(null, syscall.S_IFCHR|0o666, 1<<8|3), os.Chmod(null, 0o666))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// command runs a program and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s %s\n%s", name, strings.Join(args, " "), out)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return string(out)
}

// kind is a kind of packages.
type kind struct {
	// packages are the files of the packages, by name.
	packages        map[string]string
	install, remove func(root string, names ...string)
	// zsh is the directory in which its systems look for completions.
	zsh string
	// keepsSharedDirs is set if a removal leaves empty directories that several packages use.
	keepsSharedDirs bool
}

func debs(t *testing.T, dist string) kind {
	t.Helper()
	k := kind{zsh: "usr/share/zsh/vendor-completions", packages: map[string]string{}}
	for _, name := range []string{"cl-slurm", "cl-slurm-client"} {
		k.packages[name] = filepath.Join(dist, name+"_1.2.3-1_"+runtime.GOARCH+".deb")
	}
	k.install = func(root string, names ...string) {
		t.Helper()
		args := []string{"--root=" + root, "--install"}
		for _, name := range names {
			args = append(args, k.packages[name])
		}
		command(t, "dpkg", args...)
	}
	k.remove = func(root string, names ...string) {
		t.Helper()
		command(t, "dpkg", append([]string{"--root=" + root, "--purge"}, names...)...)
	}
	return k
}

func rpms(t *testing.T, dist string) kind {
	t.Helper()
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	k := kind{zsh: "usr/share/zsh/site-functions", packages: map[string]string{}, keepsSharedDirs: true}
	for _, name := range []string{"cl-slurm", "cl-slurm-client"} {
		k.packages[name] = filepath.Join(dist, name+"-1.2.3-1."+arch+".rpm")
	}
	k.install = func(root string, names ...string) {
		t.Helper()
		args := []string{"--root=" + root, "--dbpath=/var/lib/rpm", "--install", "--nodeps"} // the small Debian has no RPMs, not even sh's
		for _, name := range names {
			args = append(args, k.packages[name])
		}
		command(t, "rpm", args...)
	}
	k.remove = func(root string, names ...string) {
		t.Helper()
		command(t, "rpm", append([]string{"--root=" + root, "--dbpath=/var/lib/rpm", "--erase"}, names...)...)
	}
	return k
}

func testPackages(t *testing.T, root string, k kind) {
	t.Helper()
	before := tree(t, root, k)
	k.install(root, "cl-slurm-client")
	if out := command(t, "chroot", root, "cl", "--version"); !strings.Contains(out, version) {
		t.Errorf("cl is %s", out)
	}
	if there := tree(t, root, k); there["usr/bin/cl-bridge"] {
		t.Error("cl does not come alone")
	}
	k.install(root, "cl-slurm")
	for _, program := range []string{"cl-bridge", "cl-server", "cl-worker", "cl-worker-manager", "cl-worker-node", "/usr/share/cl-slurm/worker.sh"} {
		if out := command(t, "chroot", root, program, "--version"); !strings.Contains(out, version) {
			t.Errorf("%s is %s", program, out)
		}
	}
	installed := tree(t, root, k)
	for _, file := range []string{
		"usr/share/man/man1/cl.1.gz", "usr/share/man/man1/cl-upload.1.gz", "usr/share/man/man1/cl-bridge-doctor.1.gz",
		"usr/share/man/man1/cl-server-user-add.1.gz", "usr/share/man/man1/cl-worker-exec.1.gz", "usr/share/man/man1/cl-worker-manager-slurm-batch.1.gz",
		"usr/share/bash-completion/completions/cl", "usr/share/bash-completion/completions/cl-server",
		"usr/share/fish/vendor_completions.d/cl-bridge.fish", k.zsh + "/_cl", k.zsh + "/_cl-bridge",
		"usr/lib/systemd/system/cl-server.service", "usr/lib/systemd/user/cl-bridge.service", "usr/lib/systemd/user/cl-worker.service",
		"usr/lib/sysusers.d/cl-slurm.conf", "usr/share/doc/cl-slurm/copyright", "usr/share/doc/cl-slurm-client/copyright",
	} {
		if !installed[file] {
			t.Errorf("there is no %s", file)
		}
	}
	if unit := read(t, filepath.Join(root, "usr/lib/systemd/system/cl-server.service")); !strings.Contains(unit, "\nExecStart=/usr/bin/cl-server ") {
		t.Errorf("the unit has another program:\n%s", unit)
	}
	testPages(t, filepath.Join(root, "usr/share/man/man1"))

	data := filepath.Join(root, "var/lib/cl-server")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	k.remove(root, "cl-slurm", "cl-slurm-client")
	if err := os.Remove(data); err != nil {
		t.Errorf("a removal takes the data, too: %v", err)
	}
	if diff := cmp.Diff(before, tree(t, root, k)); diff != "" {
		t.Errorf("a removal leaves: %s", diff)
	}
}

// tree lists the files below root, except those that dpkg and rpm keep of themselves.
func tree(t *testing.T, root string, k kind) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if slices.Contains([]string{"var/lib/dpkg", "var/lib/rpm", "var/log", "var/cache"}, name) {
			return fs.SkipDir
		}
		shared := d.IsDir() && k.keepsSharedDirs && !strings.Contains(name, "cl-")
		if !shared {
			found[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// testPages formats each page of the manual.
func testPages(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "cl*.1.gz"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]bool{}
	for _, name := range names {
		r, err := gzip.NewReader(strings.NewReader(read(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		groff := exec.CommandContext(t.Context(), "groff", "-man", "-ww", "-z", "-k", "-Tutf8")
		groff.Stdin = bytes.NewReader(text)
		if out, err := groff.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		pages[strings.TrimSuffix(filepath.Base(name), ".1.gz")] = true
	}
	for _, program := range []string{"cl", "cl-bridge", "cl-server", "cl-worker", "cl-worker-manager", "cl-worker-node"} {
		if !pages[program] {
			t.Errorf("%s has no page among %q", program, slices.Sorted(maps.Keys(pages)))
		}
	}
}
