package apptainer_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// The layers of the torture image, the lowest first. Each directory below the root is a case, so
// that the differences between two programs appear one by one.

// with changes a file's header.
func with(f imagetest.File, change func(*tar.Header)) imagetest.File {
	change(&f.Header)
	return f
}

func mode(f imagetest.File, bits int64) imagetest.File {
	return with(f, func(h *tar.Header) { h.Mode = bits })
}

func owned(f imagetest.File, uid, gid int) imagetest.File {
	return with(f, func(h *tar.Header) { h.Uid, h.Gid = uid, gid })
}

func attribute(f imagetest.File, name, value string) imagetest.File {
	return with(f, func(h *tar.Header) { h.PAXRecords = map[string]string{"SCHILY.xattr." + name: value} })
}

func special(name string, kind byte, major, minor int64) imagetest.File {
	return with(imagetest.Regular(name, ""), func(h *tar.Header) { h.Typeflag, h.Devmajor, h.Devminor = kind, major, minor })
}

func opaque(dir string) imagetest.File { return imagetest.Regular(dir+"/.wh..wh..opq", "") }

func whiteout(name string) imagetest.File {
	return imagetest.Regular(filepath.Join(filepath.Dir(name), ".wh."+filepath.Base(name)), "")
}

// capNetRaw is a security.capability attribute of version 2 with
// cap_net_raw=ep, as capability.h has it.
const capNetRaw = "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

var (
	longName = strings.Repeat("n", 250)
	deepPath = "implied" + strings.Repeat("/0123456789abcdef", 60)
)

// tortureLayers are the layers of an image that all programs unpack alike; oddities have the other
// cases.
func tortureLayers(t *testing.T) [][]byte {
	t.Helper()
	layer := func(files []imagetest.File) []byte { return imagetest.TarStream(t, files...) }
	dir, file, link, hard := imagetest.Directory, imagetest.Regular, imagetest.Symlink, imagetest.Hardlink
	base := []imagetest.File{
		mode(dir("."), 0o711),
		// A conversion adds these if they are missing.
		dir("dev"), dir("proc"), dir("sys"), dir("etc"), dir("root"), dir("home"), mode(dir("tmp"), 0o1777), dir("var"), mode(dir("var/tmp"), 0o1777),
		file("etc/hosts", "127.0.0.1 localhost\n"), file("etc/resolv.conf", "nameserver 192.0.2.1\n"),

		dir("whiteout"), dir("whiteout/dir"), file("whiteout/dir/a", "1"), dir("whiteout/dir/sub"), file("whiteout/dir/sub/b", "1"), file("whiteout/file", "1"), file("whiteout/kept", "1"),
		file("whiteout/before", "1"), file("whiteout/later", "1"), link("whiteout/link", "kept"),
		dir("opaque"), dir("opaque/first"), file("opaque/first/old", "1"), dir("opaque/first/sub"), file("opaque/first/sub/old", "1"),
		dir("opaque/last"), file("opaque/last/old", "1"), dir("opaque/last/sub"), file("opaque/last/sub/old", "1"), file("opaque/last/both", "1"),
		dir("opaque/implied"), file("opaque/implied/old", "1"),
		dir("usr"), dir("usr/lib"), file("usr/lib/old", "1"), link("lib", "usr/lib"), dir("target"), file("target/f", "1"), link("link-by-dir", "target"),
		dir("replaced"), dir("replaced/dir-by-file"), file("replaced/dir-by-file/x", "1"), file("replaced/file-by-dir", "1"), dir("replaced/dir-by-link"), file("replaced/dir-by-link/x", "1"),
		file("replaced/victim", "1"), link("replaced/link-by-file", "victim"), file("replaced/file-by-link", "1"), file("replaced/file-by-fifo", "1"), special("replaced/fifo-by-file", tar.TypeFifo, 0, 0),
		owned(mode(dir("replaced/dir-by-dir"), 0o700), 7, 8), file("replaced/dir-by-dir/kept", "1"), mode(owned(dir("replaced/dir-as-it-was"), 5, 6), 0o750), file("replaced/dir-as-it-was/old", "1"),
		dir("hard"), file("hard/hidden", "1"), hard("hard/of-hidden", "hard/hidden"), hard("hard/too", "hard/hidden"),
		file("hard/perl", "old"), hard("hard/perl5.36.0", "hard/perl"), file("hard/one", "1"), hard("hard/two", "hard/one"), hard("hard/three", "hard/one"),
		link("hard/soft", "nowhere"), hard("hard/of-soft", "hard/soft"), special("hard/pipe", tar.TypeFifo, 0, 0), hard("hard/of-pipe", "hard/pipe"),
		hard("hard/by-link", "lib/old"), hard("hard/escaping", "../../usr/lib/old"),
	}
	upper := []imagetest.File{
		whiteout("whiteout/dir"), whiteout("whiteout/file"), whiteout("whiteout/never"), whiteout("whiteout/link"),
		whiteout("whiteout/before"), file("whiteout/before", "2"), whiteout("whiteout/later"),
		dir("opaque/first"), opaque("opaque/first"), file("opaque/first/new", "2"), dir("opaque/first/sub"), file("opaque/first/sub/new", "2"),
		dir("opaque/last"), file("opaque/last/new", "2"), dir("opaque/last/sub"), file("opaque/last/sub/new", "2"), file("opaque/last/both", "2"), opaque("opaque/last"),
		opaque("opaque/implied"), file("opaque/implied/new", "2"), dir("opaque/fresh"), file("opaque/fresh/new", "2"), opaque("opaque/fresh"),
		link("lib64", "usr/lib"), file("lib64/through-a-link-of-this-layer", "2"), mode(dir("link-by-dir"), 0o750), file("link-by-dir/g", "2"),
		file("replaced/dir-by-file", "2"), dir("replaced/file-by-dir"), file("replaced/file-by-dir/x", "2"), link("replaced/dir-by-link", "victim"),
		file("replaced/link-by-file", "2"), link("replaced/file-by-link", "victim"), special("replaced/file-by-fifo", tar.TypeFifo, 0, 0), file("replaced/fifo-by-file", "2"),
		owned(mode(dir("replaced/dir-by-dir"), 0o2755), 9, 10), file("replaced/dir-as-it-was/new", "2"),
		whiteout("hard/hidden"), file("hard/perl", "new"), file("hard/two", "2"),
		// Within a layer the last entry of a name counts.
		dir("twice"), file("twice/file", "first"), file("twice/file", "last"), file("twice/file-then-link", "1"), link("twice/file-then-link", "file"),
		link("twice/link-then-file", "file"), file("twice/link-then-file", "2"), mode(dir("twice/dir"), 0o700), file("twice/dir/kept", "1"), mode(dir("twice/dir"), 0o711),
		file("twice/linked", "1"), hard("twice/of-linked", "twice/linked"), file("twice/linked", "2"), file("twice/file-then-dir", "1"), dir("twice/file-then-dir"), file("twice/file-then-dir/x", "1"),
		dir("twice/dir-then-file"), file("twice/dir-then-file/x", "1"), file("twice/dir-then-file", "2"),
		dir(".wh..wh.plnk"), file(".wh..wh.aufs", "aufs's own"),
	}
	upper = append(upper, tortureNames()...)
	upper = append(upper, tortureKinds()...)
	top := []imagetest.File{file("whiteout/later", "3"), file("usr/lib/old", "3"), file("hard/three", "3")}
	return [][]byte{
		layer(base), layer(upper), layer(nil), layer(top),
		gnuTar(t, "pax", "--sparse"), gnuTar(t, "gnu"),
	}
}

// tortureNames are files with difficult names.
func tortureNames() []imagetest.File {
	files := []imagetest.File{
		imagetest.Directory("names"), imagetest.Regular("names/"+longName, "long"), imagetest.Regular(deepPath+"/f", "deep"),
		imagetest.Symlink("names/link", deepPath+"/f"), imagetest.Symlink("names/"+longName[:249]+"l", longName), imagetest.Hardlink("names/"+longName[:249]+"h", "names/"+longName),
		imagetest.Regular("./names/dot", "1"), imagetest.Regular("names/sub/../dotdot", "1"), imagetest.Regular("/names/absolute", "1"), imagetest.Regular("implied/sub/f", "1"),
	}
	for _, name := range []string{
		"new\nline", `back\slash`, `back\\slash`, `octal\012`, "*?[", "-dash", "--", " lead", "trail ", "co:lon", "caf\xe9", "café", "quo'te\"", "$HOME", "#x", "tab\t", "\x7f", "pseudo d 755 0 0", "...", ".wh", "wh.x",
	} {
		files = append(files, imagetest.Regular("names/"+name, name), imagetest.Directory("names/d "+name), imagetest.Regular("names/d "+name+"/f", name), imagetest.Symlink("names/l "+name, name), imagetest.Hardlink("names/h "+name, "names/"+name))
	}
	return files
}

// tortureKinds are files of all kinds, with all attributes.
func tortureKinds() []imagetest.File {
	dir, file, link, hard := imagetest.Directory, imagetest.Regular, imagetest.Symlink, imagetest.Hardlink
	at := func(f imagetest.File, when time.Time) imagetest.File {
		return with(f, func(h *tar.Header) { h.ModTime = when })
	}
	return []imagetest.File{
		dir("kinds"), file("kinds/a", "three names"), hard("kinds/b", "kinds/a"), hard("kinds/c d", "kinds/a"),
		mode(file("kinds/setuid", "#!"), 0o4755), mode(file("kinds/setgid", "#!"), 0o2755), mode(file("kinds/none", "secret"), 0), mode(file("kinds/all", ""), 0o7777),
		mode(dir("kinds/sticky"), 0o1777), mode(dir("kinds/closed"), 0o500), file("kinds/closed/f", "1"), mode(dir("kinds/setgid-dir"), 0o2775),
		owned(file("kinds/1234", "1"), 1234, 5678), owned(dir("kinds/1234-dir"), 1234, 5678), owned(link("kinds/1234-link", "1234"), 1234, 5678), owned(file("kinds/large-id", "1"), 3_000_000_000, 4_000_000_000),
		attribute(mode(file("kinds/ping", "#!"), 0o755), "security.capability", capNetRaw), attribute(file("kinds/noted", "1"), "user.comment", "a note\x00 with zero"), attribute(dir("kinds/noted-dir"), "user.comment", "of a directory"),
		attribute(owned(mode(file("kinds/owned-ping", "#!"), 0o4755), 1234, 1234), "security.capability", capNetRaw),
		special("kinds/fifo", tar.TypeFifo, 0, 0), special("kinds/null", tar.TypeChar, 1, 3), special("kinds/loop", tar.TypeBlock, 7, 0), owned(mode(special("kinds/large", tar.TypeChar, 300, 70_000), 0o640), 5, 6),
		link("kinds/dangling", "no/where"), link("kinds/escaping", "../../../../etc/passwd"), link("kinds/absolute", "/kinds/a"), link("kinds/loop-a", "loop-b"), link("kinds/loop-b", "loop-a"), link("kinds/odd", "  \n*\\"),
		link("kinds/far", strings.Repeat("x/", 500)+"y"),
		file("kinds/empty", ""), file("kinds/zeros", strings.Repeat("\x00", 300_000)), file("kinds/big", strings.Repeat("0123456789abcdef\n", 20_000)),
		at(file("kinds/fraction", "1"), time.Unix(1_234_567_890, 999_999_999)), at(file("kinds/epoch", "1"), time.Unix(0, 0)), at(file("kinds/2100", "1"), time.Unix(4_102_444_800, 0)), at(link("kinds/old-link", "a"), time.Unix(1_000, 0)),
	}
}

// gnuTar makes a layer by GNU tar, with long names and with files that have holes, as its format
// writes them. Other programs refuse sparse entries of the older format, so files of format "gnu"
// are written in full.
func gnuTar(t *testing.T, format string, options ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	name := filepath.Join(dir, format, strings.Repeat("s", 200))
	must(os.MkdirAll(name, 0o755))
	for file, holes := range map[string][]int64{"middle": {0, 1 << 20}, "end": {0}, "start": {1 << 20}, "many": {0, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23}} {
		f, err := os.Create(filepath.Join(name, file))
		must(err)
		for _, at := range holes {
			_, err := f.WriteAt([]byte("data of "+file), at)
			must(err)
		}
		must(f.Truncate(10 << 20))
		must(f.Close())
	}
	must(os.Link(filepath.Join(name, "end"), filepath.Join(dir, format, "hard")))
	must(os.Symlink(strings.Repeat("t", 300), filepath.Join(dir, format, "soft")))
	cmd := exec.Command("tar", "--format="+format, "--owner=0", "--group=0", "--sort=name", "--mtime=@1000000000", "-C", dir, "-cf", "-", format)
	cmd.Args = slices.Insert(cmd.Args, 1, options...)
	stream, err := cmd.Output()
	must(err)
	return stream
}

// ociLayer returns a compressed layer of the type that OCI's own programs require.
func ociLayer(t *testing.T, stream []byte) v1.Layer {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(stream)), nil }, tarball.WithMediaType(types.OCILayer))
	must(t, err)
	return layer
}

// imageOf returns an image of these layers, uncompressed and the lowest first.
func imageOf(t *testing.T, streams ...[]byte) v1.Image {
	t.Helper()
	var layers []v1.Layer
	for _, stream := range streams {
		layers = append(layers, ociLayer(t, stream))
	}
	return imagetest.Image(t, v1.Config{}, layers...)
}
