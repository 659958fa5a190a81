package apptainer_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// Differences of an unpacker from the others, by its name and the path. Lines of the trees are
// changed accordingly before they are compared.
var peculiarities = map[string]func(name, line string) string{
	"apptainer": func(name, line string) string {
		switch {
		case name == "etc/hosts", name == "etc/resolv.conf":
			return "emptied" // makeFiles in its base_environment.go
		case strings.HasPrefix(name, "implied") && strings.HasPrefix(line, "dir "):
			return "dir of some mode" // 0775, 0755 with umoci and containerd
		}
		return line
	},
	"containerd": func(name, line string) string {
		if name == "." {
			return "dir of some mode" // that of the last layer's directory, 0755, not that of lower layers
		}
		return line
	},
}

func TestTortureImageIsUnpackedAsOthersUnpackIt(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	img := imageOf(t, tortureLayers(t)...)
	ours, err := convertedTree(t, img)
	must(t, err)
	if len(ours) < 250 {
		t.Fatalf("only %d paths: the image is not what it should be", len(ours))
	}
	for _, u := range unpackers(t) {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			theirs, err := u.tree(t, img)
			must(t, err)
			names := slices.Compact(slices.Sorted(func(yield func(string) bool) {
				maps.Keys(ours)(yield)
				maps.Keys(theirs)(yield)
			}))
			same := func(_, line string) string { return line }
			if change := peculiarities[u.name]; change != nil {
				same = change
			}
			for _, name := range names {
				if same(name, ours[name]) != same(name, theirs[name]) {
					t.Errorf("%.300q\nours:   %.500s\ntheirs: %.500s", name, ours[name], theirs[name])
				}
			}
			t.Logf("%d paths compared", len(names))
		})
	}
}

func TestTortureImageIsWrittenAlikeByTar2sqfs(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	testenv.ImageTool(t, "tar2sqfs")
	converter := apptainer.Converter{Mksquashfs: oldMksquashfs(t)}
	img := imageOf(t, tortureLayers(t)...)
	want, err := convertedTree(t, img)
	must(t, err)
	got, err := treeBy(t, converter, img)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-mksquashfs -tar +it):\n%s", diff)
	}
}

// refused is the tree of a program that refuses the image.
const refused = "refused"

// oddity is an image of two or three small layers that programs unpack differently. Trees are
// written as in listing.
type oddity struct {
	name   string
	layers [][]imagetest.File
	// want is the tree of this project. Trees of umoci, Apptainer or containerd (for overlayfs, as
	// in Docker) are given if they differ.
	want   string
	others map[string]string
}

func oddities() []oddity {
	dir, file, link, hard := imagetest.Directory, imagetest.Regular, imagetest.Symlink, imagetest.Hardlink
	type layers = [][]imagetest.File
	type others = map[string]string
	return []oddity{
		// image-spec, layer.md: "Whiteout files MUST only apply to resources in
		// lower/parent layers", whatever their order. containerd and Docker,
		// which make a device of a whiteout, refuse such layers or mix them up,
		// so no image relies on their behaviour.
		{"whiteout after the layer's own file", layers{{file("c", "1")}, {file("c", "2"), whiteout("c")}}, "c=2", others{"containerd": refused}},
		{"whiteout of a directory that is made anew", layers{{dir("c"), file("c/old", "1")}, {whiteout("c"), dir("c"), file("c/new", "2")}}, "c/ c/new=2", others{"containerd": "c/ c/new=2 c/old=1"}},
		{"whiteout of a directory after it is made anew", layers{{dir("c"), file("c/old", "1")}, {dir("c"), file("c/new", "2"), whiteout("c")}}, "c/ c/new=2", others{"containerd": refused}},
		{"whiteout of a directory that is implied anew", layers{{dir("c"), file("c/old", "1")}, {whiteout("c"), file("c/new", "2")}}, "c/ c/new=2", others{"containerd": refused}},

		// A path through a link of a lower layer. For overlayfs each layer is
		// unpacked by itself, so the link becomes a directory, and a merged
		// /lib loses all that was in /usr/lib; programs that make such layers
		// mean what umoci and Apptainer do.
		{"entry through a link", layers{{dir("t"), file("t/f", "1"), link("c", "t")}, {file("c/g", "2")}}, "c->t t/ t/f=1 t/g=2", others{"containerd": "c/ c/g=2 t/ t/f=1"}},
		{"entry through an absolute link", layers{{dir("t"), link("c", "/t")}, {file("c/g", "2")}}, "c->/t t/ t/g=2", others{"containerd": "c/ c/g=2 t/"}},
		{"entry through a link that leaves the root", layers{{dir("t"), link("c", "../../../t")}, {file("c/g", "2")}}, "c->../../../t t/ t/g=2", others{"containerd": "c/ c/g=2 t/"}},
		{"entry through a link to nothing", layers{{link("c", "t")}, {file("c/g", "2")}}, "c->t t/ t/g=2", others{"containerd": "c/ c/g=2"}},
		{"whiteout through a link", layers{{dir("t"), file("t/f", "1"), link("c", "t")}, {whiteout("c/f")}}, "c->t t/", others{"containerd": "c/ c/f:unreachable t/ t/f=1"}},
		{"opaque through a link", layers{{dir("t"), file("t/f", "1"), link("c", "t")}, {opaque("c")}}, "c->t t/", others{"containerd": "c/ t/ t/f=1"}},
		{"links in a circle", layers{{link("c", "d"), link("d", "c")}, {file("c/x", "1")}}, refused, nil},

		// Docker's own layers repeat the target of a hard link. Those of other programs need not,
		// and are not refused for it.
		{"hard link to a lower layer", layers{{file("a", "1")}, {hard("c", "a")}}, "a=1(a,c) c=1(a,c)", others{"containerd": refused}},
		{"hard link to a lower layer that is replaced above", layers{{file("a", "1")}, {hard("c", "a")}, {file("a", "3")}}, "a=3 c=1", others{"containerd": refused}},
		{"hard link to what the layer hides", layers{{file("a", "1")}, {hard("c", "a"), whiteout("a")}}, "c=1", others{"containerd": refused}},
		{"hard link to nothing", layers{{hard("c", "a")}}, refused, nil},
		{"hard link to a directory", layers{{dir("a"), hard("c", "a")}}, refused, nil},

		// An implied directory replaces a file above it, as overlayfs shows it. In the layer's own
		// file there cannot be an entry.
		{"implied directory over a file", layers{{file("c", "1")}, {file("c/x", "2")}}, "c/ c/x=2", others{"umoci": refused}},
		{"file in a file", layers{{file("c", "1"), file("c/x", "2")}}, refused, others{"apptainer": "c/ c/x=2"}},

		// An overlay writes these for its own use. In a container, with an overlay over ours, such
		// a device hides itself.
		{"overlay's whiteout", layers{{file("c", "1")}, {special("c", '3', 0, 0)}}, "c:char", others{"containerd": ""}},
		{"overlay's attributes", layers{{attribute(file("c", "1"), "user.overlay.opaque", "y")}}, "c=1", others{
			"umoci": "c=1,user.overlay.opaque", "apptainer": "c=1,user.overlay.opaque", "containerd": "c=1,user.overlay.opaque",
		}},
		// An ordinary user's container can neither set nor see these.
		{"trusted attribute", layers{{attribute(file("c", "1"), "trusted.note", "x")}}, "c=1", others{"umoci": "c=1,trusted.note", "apptainer": "c=1,trusted.note"}},
		// squashfs keeps no lists of access rights.
		{"access list", layers{{attribute(file("c", "1"), "system.posix_acl_access", readableBy7)}}, "c=1", others{
			"umoci": "c=1,system.posix_acl_access", "apptainer": "c=1,system.posix_acl_access", "containerd": "c=1,system.posix_acl_access",
		}},
	}
}

// readableBy7 is user::rw-, user:7:r--, group::r--, mask::r--, other::r-- as
// linux/posix_acl_xattr.h has it.
const readableBy7 = "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\x07\x00\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"

// listing writes a small tree on one line: "dir/ file=content link->target other:kind", with the
// other names of a file and its attributes. It omits the entries of every image.
func listing(tree map[string]string) string {
	content, target := regexp.MustCompile(` content="((?:[^"\\]|\\.)*)"`), regexp.MustCompile(` target="([^"]*)"`)
	names, attribute := regexp.MustCompile(` names=\["([^\]]*)"\]`), regexp.MustCompile(` ((?:user|system|trusted|security)[.\w]+)=`)
	var words []string
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		line, word := tree[name], name
		switch kind, _, _ := strings.Cut(line, " "); kind {
		case "dir":
			word += "/"
		case "file":
			word += "=" + strings.ReplaceAll(content.FindStringSubmatch(line)[1], `\x00`, "\x00")
		case "link":
			word += "->" + target.FindStringSubmatch(line)[1]
		default:
			word += ":" + kind
		}
		if m := names.FindStringSubmatch(line); m != nil {
			word += "(" + strings.ReplaceAll(m[1], `" "`, ",") + ")"
		}
		for _, m := range attribute.FindAllStringSubmatch(line, -1) {
			word += "," + m[1]
		}
		switch name {
		case ".", "dev", "proc", "sys", "etc", "etc/hosts", "etc/resolv.conf", "root", "home", "tmp", "var", "var/tmp":
		default:
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestOdditiesAreUnpackedAsTheTableSays(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	programs := unpackers(t)
	for _, o := range oddities() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			var streams [][]byte
			for _, files := range o.layers {
				streams = append(streams, imagetest.TarStream(t, files...))
			}
			img := imageOf(t, streams...)
			all := append([]unpacker{{"ours", convertedTree}}, programs...)
			for _, u := range all {
				t.Run(u.name, func(t *testing.T) {
					want, differs := o.others[u.name]
					if !differs {
						want = o.want
					}
					got := refused
					tree, err := u.tree(t, img)
					if err == nil {
						got = listing(tree)
					}
					if got != want {
						t.Errorf("%q, %v; want %q", got, err, want)
					}
				})
			}
		})
	}
}

func TestSparseFilesOfBothFormatsAreReadInFull(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.Root(t)
	whole, err := convertedTree(t, imageOf(t, gnuTar(t, "gnu")))
	must(t, err)
	for _, format := range []string{"gnu", "pax"} {
		sparse, err := convertedTree(t, imageOf(t, gnuTar(t, format, "--sparse", "--transform=s,^"+format+",gnu,")))
		must(t, err)
		if diff := cmp.Diff(whole, sparse); diff != "" {
			t.Errorf("%s (-whole +sparse):\n%s", format, diff)
		}
	}
}
