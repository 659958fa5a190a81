package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// commitTime stands for the commit's time, because the tests also run on sources without git.
var commitTime = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// newBuild returns a build for both architectures, as the command without flags makes it.
func newBuild(dir string) *build {
	return &build{
		source: "../..", version: "v1.2.3", time: commitTime, architectures: []string{"amd64", "arm64"}, dir: dir,
		debian: debian{suite: "trixie", mirror: "http://deb.debian.org/debian", security: "http://deb.debian.org/debian-security"},
	}
}

// shared is the image that tests look at. The first one that needs it builds it.
var shared struct {
	sync.Once
	image *made
	err   error
}

func sharedImage(t *testing.T) *made {
	t.Helper()
	testenv.DebianMirror(t)
	shared.Do(func() {
		var dir string
		if dir, shared.err = os.MkdirTemp("", "workerimage-"); shared.err != nil {
			return
		}
		shared.image, shared.err = newBuild(dir).image(context.Background())
		shared.err = errors.Join(shared.err, os.RemoveAll(dir))
	})
	testenv.Must(t, shared.err)
	return shared.image
}

// ofArchitecture returns the image of an architecture, and its files.
func (m *made) ofArchitecture(t *testing.T, architecture string) (v1.Image, tree) {
	t.Helper()
	manifest, err := m.index.IndexManifest()
	testenv.Must(t, err)
	for _, one := range manifest.Manifests {
		if one.Platform.OS != "linux" || one.Platform.Architecture != architecture {
			continue
		}
		img, err := m.index.Image(one.Digest)
		testenv.Must(t, err)
		layers, err := img.Layers()
		testenv.Must(t, err)
		all := tree{}
		for _, l := range layers {
			stream, err := l.Uncompressed()
			testenv.Must(t, err)
			readTree(t, all, stream)
			testenv.Must(t, stream.Close())
		}
		return img, all
	}
	t.Fatalf("there is no image for %s in %v", architecture, manifest.Manifests)
	return nil, nil
}

func readTree(t *testing.T, all tree, stream io.Reader) {
	t.Helper()
	r := tar.NewReader(stream)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		testenv.Must(t, err)
		content, err := io.ReadAll(r)
		testenv.Must(t, err)
		if !h.ModTime.Equal(commitTime) {
			t.Errorf("%s is of %v", h.Name, h.ModTime)
		}
		all[strings.TrimSuffix(h.Name, "/")] = file{kind: h.Typeflag, mode: h.Mode, target: h.Linkname, uid: h.Uid, gid: h.Gid, content: content}
	}
}

// resolve follows the links of a path, as the kernel does in the image.
func (t tree) resolve(name string) (string, bool) {
	for range 20 {
		name = merged(name)
		f, known := t[name]
		if !known || f.kind != tar.TypeSymlink {
			return name, known
		}
		if path.IsAbs(f.target) {
			name = f.target[1:]
		} else {
			name = path.Join(path.Dir(name), f.target)
		}
	}
	return name, false
}

func TestTwoBuildsHaveTheSameDigest(t *testing.T) {
	t.Parallel()
	first := sharedImage(t)
	second, err := newBuild(t.TempDir()).image(t.Context())
	testenv.Must(t, err)
	if diff := cmp.Diff(first.packages, second.packages); diff != "" {
		t.Skipf("Debian has new packages since the first build: %s", diff)
	}
	var digests []string
	for i, m := range []*made{first, second} {
		digest, err := m.index.Digest()
		testenv.Must(t, err)
		file := filepath.Join(t.TempDir(), "image.tar")
		testenv.Must(t, m.write(file))
		archive, err := os.ReadFile(file)
		testenv.Must(t, err)
		digests = append(digests, digest.String())
		if i == 1 && digests[0] != digests[1] {
			t.Errorf("the digests are %s", digests)
		}
		t.Logf("%s, %d bytes", digest, len(archive))
	}
}

// Each program and library of an image is for its architecture, and so are all libraries that it loads.
func TestImageHasAllLibrariesOfItsPrograms(t *testing.T) {
	t.Parallel()
	m := sharedImage(t)
	for architecture, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		_, all := m.ofArchitecture(t, architecture)
		programs := 0
		loads, libraries := map[string]bool{}, []string{}
		for name, f := range all {
			if f.kind != tar.TypeReg || !bytes.HasPrefix(f.content, []byte(elf.ELFMAG)) {
				continue
			}
			binary, err := elf.NewFile(bytes.NewReader(f.content))
			testenv.Must(t, err)
			if binary.Machine != machine {
				t.Errorf("%s: %s is for %v", architecture, name, binary.Machine)
			}
			if strings.HasPrefix(name, "usr/bin/") {
				programs++
			} else {
				libraries = append(libraries, name)
			}
			for _, p := range binary.Progs {
				if p.Type != elf.PT_INTERP {
					continue
				}
				linker, err := io.ReadAll(p.Open())
				testenv.Must(t, err)
				at, known := all.resolve(strings.Trim(string(linker), "/\x00"))
				if !known {
					t.Errorf("%s: %s needs %s", architecture, name, linker)
				}
				loads[at] = true
			}
			needed, err := binary.ImportedLibraries()
			testenv.Must(t, err)
			for _, library := range needed {
				at, common := all.resolve("usr/lib/" + library)
				own, known := all.resolve("usr/lib/" + triplets()[architecture] + "/" + library)
				if !known && !common {
					t.Errorf("%s: %s needs %s", architecture, name, library)
				}
				loads[at], loads[own] = true, true
			}
		}
		for _, name := range libraries {
			if !loads[name] && !isLoaded(name) {
				t.Errorf("%s: no program needs %s", architecture, name)
			}
		}
		for _, need := range []string{"cl-worker", "cl-worker-manager", "squashfuse_ll", "bwrap", "slirp4netns", "mksquashfs", "unsquashfs", "newuidmap", "newgidmap", "nsenter", "xz", "sh"} {
			if at, known := all.resolve("usr/bin/" + need); !known || all[at].mode&0o777 != 0o755 {
				t.Errorf("%s: there is no program %s", architecture, need)
			}
		}
		if programs < 11 {
			t.Errorf("%s: %d programs", architecture, programs)
		}
	}
}

func TestImageNeedsNoRootAndGivesNoRights(t *testing.T) {
	t.Parallel()
	m := sharedImage(t)
	img, all := m.ofArchitecture(t, "amd64")
	config, err := img.ConfigFile()
	testenv.Must(t, err)
	if c := config.Config; c.User != "1000:1000" || c.WorkingDir != "/home/codalab" || !slices.Equal(c.Entrypoint, []string{"/usr/bin/cl-worker"}) || len(c.Cmd) > 0 {
		t.Errorf("%+v", c)
	}
	for name, f := range all {
		switch {
		case f.mode&0o6000 != 0:
			t.Errorf("%s has mode %o", name, f.mode)
		case f.kind == tar.TypeReg && f.mode&0o444 != 0o444:
			t.Errorf("users cannot read %s", name)
		case f.mode&0o002 != 0 && f.kind != tar.TypeSymlink && f.mode&0o1000 == 0:
			t.Errorf("everybody can write to %s", name)
		case (f.uid != 0 || f.gid != 0) && name != "home/codalab":
			t.Errorf("%s belongs to %d:%d", name, f.uid, f.gid)
		}
	}
	if at := all["home/codalab"]; at.uid != 1000 || at.gid != 0 || at.mode != 0o775 {
		t.Errorf("%+v", at)
	}
	if n := bytes.Count(all["etc/ssl/certs/ca-certificates.crt"].content, []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d authorities", n)
	}
}

// A scanner finds the packages and their versions.
func TestImageSaysWhatItHas(t *testing.T) {
	t.Parallel()
	m := sharedImage(t)
	img, all := m.ofArchitecture(t, "arm64")
	config, err := img.ConfigFile()
	testenv.Must(t, err)
	if l := config.Config.Labels; l["org.opencontainers.image.version"] != "v1.2.3" || l["org.opencontainers.image.created"] != "2026-11-27T12:00:00Z" ||
		config.Architecture != "arm64" || !config.Created.Equal(commitTime) {
		t.Errorf("%+v %v", config, l)
	}
	for _, one := range m.packages["arm64"] {
		name, version, _ := strings.Cut(one, " ")
		if f := all["var/lib/dpkg/status.d/"+name]; !strings.Contains(string(f.content), "Package: "+name+"\n") || !strings.Contains(string(f.content), "Version: "+version+"\n") {
			t.Errorf("%s: %s", one, f.content)
		}
		if at, known := all.resolve("usr/share/doc/" + name + "/copyright"); !known && !strings.HasPrefix(name, "gcc-") && name != "libgcc-s1" && name != "libatomic1" {
			t.Errorf("the licence of %s is not at %s", name, at)
		}
	}
	if len(m.packages["arm64"]) < 20 || !strings.Contains(string(all["usr/lib/os-release"].content), "ID=debian") {
		t.Errorf("%v", m.packages)
	}
}

// A node pulls the image before its first worker starts.
func TestImageIsSmall(t *testing.T) {
	t.Parallel()
	m := sharedImage(t)
	const most = 25_000_000
	for _, architecture := range []string{"amd64", "arm64"} {
		img, _ := m.ofArchitecture(t, architecture)
		layers, err := img.Layers()
		testenv.Must(t, err)
		var size int64
		for _, l := range layers {
			n, err := l.Size()
			testenv.Must(t, err)
			size += n
		}
		if size > most {
			t.Errorf("%s has %d bytes, more than %d", architecture, size, most)
		}
	}
}

func TestArchiveAndRegistryHaveTheSameIndex(t *testing.T) {
	t.Parallel()
	m := sharedImage(t)
	want, err := m.index.Digest()
	testenv.Must(t, err)
	registry := imagetest.Start(t)
	ref, err := name.ParseReference(registry.Host + "/lab/cl-worker:1")
	testenv.Must(t, err)
	testenv.Must(t, m.push(t.Context(), ref.Name()))
	pushed, err := remote.Index(ref)
	testenv.Must(t, err)
	testenv.Must(t, validate.Index(pushed))
	file, dir := filepath.Join(t.TempDir(), "image.tar"), t.TempDir()
	testenv.Must(t, m.write(file))
	archive, err := os.Open(file)
	testenv.Must(t, err)
	all := tree{}
	readTree(t, all, archive)
	testenv.Must(t, archive.Close())
	for name, f := range all {
		testenv.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		if f.kind == tar.TypeReg {
			testenv.Must(t, os.WriteFile(filepath.Join(dir, name), f.content, 0o644))
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	testenv.Must(t, err)
	testenv.Must(t, validate.Index(top))
	manifest, err := top.IndexManifest()
	testenv.Must(t, err)
	if got, err := pushed.Digest(); err != nil || got != want || len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest != want {
		t.Errorf("pushed %v (%v), saved %v, want %v", got, err, manifest.Manifests, want)
	}
	if annotations := manifest.Manifests[0].Annotations; annotations["io.containerd.image.name"] != "localhost/cl-worker:v1.2.3" {
		t.Errorf("%v", annotations)
	}
}

func TestUnknownPlatformsAreRefused(t *testing.T) {
	t.Parallel()
	for names, want := range map[string][]string{
		"linux/amd64": {"amd64"}, "linux/arm64,linux/amd64,linux/arm64": {"amd64", "arm64"}, "": nil, "amd64": nil, "linux/riscv64": nil, "darwin/arm64": nil,
	} {
		got, err := parsePlatforms(names)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", names, got, err)
		}
	}
}

// The answer comes before the work.
func TestNameThatNoImageCanHaveIsRefused(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "image.tar")
	err := run(t.Context(), []string{"-source", "/no/such/directory", "-out", out, "-push", "registry.site/Lab/Worker"})
	if err == nil || !strings.HasPrefix(err.Error(), "-push: ") {
		t.Error(err)
	}
}

func TestMirrorThatIsNoneIsReported(t *testing.T) {
	t.Parallel()
	testenv.DebianMirror(t)
	d := newBuild("").debian
	d.suite = "no-such-suite"
	_, err := d.fetch(t.Context(), "amd64", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "no-such-suite") {
		t.Error(err)
	}
}
