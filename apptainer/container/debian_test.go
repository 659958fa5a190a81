package container_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/madeonce"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// debian is a small Debian with apt and pip, which is made once for all tests; its layer, which takes minutes of a slow
// machine, once for all runs of them.
var debian struct {
	once  sync.Once
	image v1.Image
	sifs  map[string]*sharedImage // by compression
}

func debianImage(tb testing.TB) v1.Image {
	tb.Helper()
	testenv.Packages(tb)
	debian.once.Do(func() {
		args := []string{"--quiet", "--variant=apt", "--include=python3-pip", "--format=tar", "--skip=output/dev"}
		for _, left := range []string{"doc", "locale", "man"} {
			args = append(args, "--dpkgopt=path-exclude=/usr/share/"+left+"/*")
		}
		args = append(args, "bookworm")
		made, err := madeonce.Path(filepath.Join(slurmcluster.Base, "kept"), strings.Join(args, "\x00"), func(tmp string) (string, error) {
			tar := filepath.Join(tmp, "debian.tar")
			if output, err := exec.Command("mmdebstrap", append(args, tar)...).CombinedOutput(); err != nil {
				return "", fmt.Errorf("mmdebstrap: %w: %s", err, output)
			}
			return tar, nil
		})
		if err != nil {
			tb.Log(err)
			return
		}
		layer, err := os.ReadFile(made)
		must(tb, err)
		debian.sifs = map[string]*sharedImage{"": {}, "gzip": {}}
		debian.image = imagetest.Image(tb, v1.Config{}, imagetest.GzipLayer(tb, layer))
	})
	if debian.image == nil {
		tb.Skip("needs Debian's archive: see the first test that needs it")
	}
	return debian.image
}

// debian returns the small Debian for this runtime.
func (w testRuntime) debian(tb testing.TB) container.Container {
	tb.Helper()
	image := debianImage(tb)
	if w.Pods != nil {
		return container.Container{PinnedReference: kubetest.Load(tb, image)}
	}
	if w.Engine != nil {
		name := w.loadImage(tb, image)
		tb.Cleanup(func() { w.call(tb, "rmi", "--force", name) })
		return container.Container{PinnedReference: name}
	}
	shared := debian.sifs[w.compression]
	shared.make(tb, func() string { return convertImage(tb, apptainer.Converter{Compression: w.compression}, image) })
	return container.Container{SIF: shared.path}
}

// The programs that install packages and users need the ids of a Debian.
func TestDebianInstallsPackagesAndUsersInARange(t *testing.T) {
	t.Parallel()
	w := rangedRuntime(t)
	c := w.debian(t)
	work := userDir(t)
	c.Network, c.Dir, c.Env = container.HostNetwork, "/work", []string{"DEBIAN_FRONTEND=noninteractive"}
	c.Binds = []container.Bind{{Source: work, Target: "/work"}, {Source: "/etc/apt", Target: "/etc/apt", ReadOnly: true}}
	c.ShellCommand = `
set -e
apt-get update >log 2>&1 && apt-get install -y --no-install-recommends cron >>log 2>&1 || { tail -n 20 log; exit 1; }
stat -c '%a %U:%G' /usr/bin/crontab /var/lib/apt/lists/partial /etc/shadow
useradd --create-home ann
su ann -c 'id -un; echo mine >~/file'
tar -C /home -cf ann.tar ann; rm -r /home/ann; tar -C /home -xf ann.tar
stat -c %U:%G /home/ann/file
su ann -c 'cat ~/file /etc/shadow' 2>&1 | head -n 2`
	const want = `2755 root:crontab
700 _apt:root
640 root:shadow
ann
ann:ann
mine
cat: /etc/shadow: Permission denied
`
	if got := w.shell(t, c); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	wantOwned(t, work)
}

// pip installs a wheel for everybody, and its program.
func TestFidelityPipInstallsAWheel(t *testing.T) {
	t.Parallel()
	debianImage(t)
	onEachRuntime(t, func(t *testing.T, w testRuntime) {
		if w.plain() && w.singularityCE {
			t.Skip("with SingularityCE the command runs as the user, as the table in docs/containers.md lists")
		}
		c := w.debian(t)
		work := userDir(t)
		must(t, os.WriteFile(filepath.Join(work, "greeting-1.0-py3-none-any.whl"), wheel(t), 0o644))
		c.Dir, c.Binds = "/work", []container.Bind{{Source: work, Target: "/work"}}
		c.ShellCommand = `
set -e
pip install --no-index --break-system-packages greeting-1.0-py3-none-any.whl >log 2>&1 || { tail -n 20 log; exit 1; }
greet
pip uninstall --yes --break-system-packages greeting >>log 2>&1
greet 2>&- || echo gone`
		if got := w.shell(t, c); got != "hello from a wheel\ngone\n" {
			t.Errorf("output %q", got)
		}
	})
}

// wheel returns a package for pip, with a module and a program.
func wheel(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, file := range [][2]string{
		{"greeting.py", "def main():\n    print('hello from a wheel')\n"},
		{"greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n"},
		{"greeting-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"greeting-1.0.dist-info/entry_points.txt", "[console_scripts]\ngreet = greeting:main\n"},
		{"greeting-1.0.dist-info/RECORD", "greeting.py,,\ngreeting-1.0.dist-info/METADATA,,\ngreeting-1.0.dist-info/WHEEL,,\ngreeting-1.0.dist-info/entry_points.txt,,\ngreeting-1.0.dist-info/RECORD,,\n"},
	} {
		f, err := w.Create(file[0])
		must(t, err)
		_, err = f.Write([]byte(file[1]))
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}
