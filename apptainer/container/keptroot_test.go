package container_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// leftRoots returns the roots that the containers of a place have changed, and left in their private directories.
func (p *place) leftRoots() []string {
	p.t.Helper()
	left, err := filepath.Glob(filepath.Join(p.dir, "container-*", "written"))
	must(p.t, err)
	return left
}

// onEachDisk runs a test with the places of several users, and with one that has its files on a tmpfs: there, as on XFS and btrfs, the size
// of a directory follows its entries.
func onEachDisk(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	onEachPlace(t, test)
	t.Run("tmpfs", func(t *testing.T) {
		t.Parallel()
		p := startPlaceOnHost(t, "true")
		p.dir = userDirIn(t, "/dev/shm")
		test(t, p)
	})
}

// A container has the root of the last one only if that has left it as it was.
func TestRootOfAPlaceHasNoChangesOfAnEarlierContainer(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	image := sif(t, shellConfig(), append(smallRoot(t), imagetest.Directory("vacant"), imagetest.Directory("hollow"), imagetest.Regular("hollow/file", ""))...)
	const look = `
stat -c '%n %a %u %g %h %s' / /etc /etc/hosts /etc/resolv.conf /usr
ls / /etc /usr /bin
cat /etc/hosts /usr/shipped
test / -nt /work/before && echo new`
	onEachDisk(t, func(t *testing.T, p *place) {
		work := userDir(t)
		must(t, os.WriteFile(filepath.Join(work, "before"), nil, 0o644))
		c := container.Container{SIF: image, Dir: "/at/work", Binds: []container.Bind{{Source: work, Target: "/work"}, {Source: userDir(t), Target: "/other/deep/er"}}}
		want := p.shell(c, look)
		if !strings.HasSuffix(want, "by the image\nnew\n") {
			t.Errorf("the first container says %q", want)
		}
		for _, test := range []struct {
			command string
			changed bool
		}{
			{"true", false},
			{"echo x >/work/x; echo x >/dev/shm/x", false},
			{"mkdir -p /made/deep; touch /made/empty /empty", false},
			{"echo x >/made && rm /made", false},
			{"echo x >/made", true},
			{"ln -s /etc /made", true},
			{"touch /at/made; ln /at/made /at/again", true},
			{"mkdir /many; cd /many; for i in 1 2 3 4 5 6 7 8; do touch $i ${i}1 ${i}2 ${i}3 ${i}4 ${i}5 ${i}6 ${i}7 ${i}8; done", true},
			{"i=; while [ ${#i} -lt 70 ]; do i=x$i; d=$d/d; done; mkdir -p /deep$d", true},
			{"touch /vacant/made", true},
			{"touch /vacant/made; rm /vacant/made", true},
			{"rm -r /vacant", true},
			{"rm -r /vacant; mkdir /vacant", true},
			{"touch /hollow/made; rm /hollow/made", true},
			{"chmod 711 /", true},
			{"rm /usr/shipped", true},
			{"echo 127.0.0.1 other >/etc/hosts", true},
			{"chmod 600 /etc/hosts", true},
		} {
			before := p.leftRoots()
			p.shell(c, test.command)
			if changed := len(p.leftRoots()) > len(before); changed != test.changed {
				t.Errorf("%s: it has left a changed root: %t", test.command, changed)
			}
			if diff := cmp.Diff(want, p.shell(c, look)); diff != "" {
				t.Errorf("after %s (-first +later):\n%s", test.command, diff)
			}
		}
		many := container.Container{SIF: image}
		for n := range 40 {
			many.Binds = append(many.Binds, container.Bind{Source: work, Target: fmt.Sprintf("/%s%d", strings.Repeat("long", 60), n)})
		}
		p.shell(many, "true")
		if diff := cmp.Diff(want, p.shell(c, look)); diff != "" {
			t.Errorf("after many mount points (-first +later):\n%s", diff)
		}
		before := p.leftRoots()
		c = container.Container{SIF: image} // nothing is made in its root
		p.shell(c, "touch -d @1 /")
		if got := p.shell(c, "stat -c %Y /"); got == "1\n" || len(p.leftRoots()) > len(before) {
			t.Errorf("the root was last changed at %s", got)
		}
	})
}

// keptMountPoints returns the inode numbers of what is in the root of the place's next container, by its names.
func (p *place) keptMountPoints() map[string]uint64 {
	p.t.Helper()
	found, err := filepath.Glob(filepath.Join(p.dir, "kept-*", "written", "upper", "*"))
	must(p.t, err)
	kept := map[string]uint64{}
	for _, path := range found {
		var st unix.Stat_t
		must(p.t, unix.Lstat(path, &st))
		inside, err := os.ReadDir(path)
		must(p.t, err)
		if len(inside) > 0 {
			p.t.Errorf("%s holds %v", path, inside)
		}
		kept[filepath.Base(path)] = st.Ino
	}
	return kept
}

// A container has the mount points of the last one, and sees nothing of that.
func TestMountPointsOfAPlaceGetTheNamesOfTheNextContainer(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	image := sif(t, shellConfig(), append(smallRoot(t), imagetest.Directory("vacant"))...)
	onEachDisk(t, func(t *testing.T, p *place) {
		source := userDir(t)
		must(t, os.WriteFile(filepath.Join(source, "text"), []byte("text\n"), 0o644))
		bind := func(targets ...string) (binds []container.Bind) {
			for _, target := range targets {
				binds = append(binds, container.Bind{Source: source, Target: target})
			}
			return binds
		}
		file := container.Bind{Source: filepath.Join(source, "text"), Target: "/file"}
		own := strings.Fields(p.shell(container.Container{SIF: image}, "ls -A /"))
		before := p.keptMountPoints()
		for _, test := range []struct {
			binds   []container.Bind
			command string
			visible string // of the top directory, except for what the image has
			kept    []string
			changed bool
		}{
			{bind("/a", "/a_tmp"), "cat /a/text /a_tmp/text", "a a_tmp", []string{"a", "a_tmp"}, false},
			{bind("/b_tmp", "/b"), "cat /b/text /b_tmp/text", "b b_tmp", []string{"b", "b_tmp"}, false},
			{bind("/b_tmp", "/b"), "cat /b/text /b_tmp/text", "b b_tmp", []string{"b", "b_tmp"}, false},
			{bind("/b_tmp", "/c"), "cat /c/text /b_tmp/text", "b_tmp c", []string{"b_tmp", "c"}, false},
			{append(bind("/deep/er", "/e"), file), "cat /deep/er/text /e/text /file", "deep e file", []string{"e"}, false},
			{bind("/f", "/g"), "cat /f/text /g/text", "f g", []string{"f", "g"}, false},
			{bind("/h"), "mkdir /f /i; rm -r /f", "h i", []string{"h"}, false},
			{bind("/i"), "cat /i/text", "i", []string{"i"}, false},
			{bind("/vacant"), "cat /vacant/text", "", nil, false},
			{nil, "true", "", nil, false},
			{bind("/j", "/k"), "touch /vacant/x", "j k", nil, true},
			{bind("/l", "/m"), "cat /l/text /m/text; ls /vacant", "l m", []string{"l", "m"}, false},
			{nil, "true", "", nil, false},
		} {
			left := p.leftRoots()
			c := container.Container{SIF: image, Binds: test.binds}
			got := p.shell(c, "set -e; "+test.command+" >&2 2>/dev/null; ls -A /")
			visible := slices.DeleteFunc(strings.Fields(got), func(name string) bool { return name == "text" || slices.Contains(own, name) })
			if diff := cmp.Diff(strings.Fields(test.visible), visible, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v: in the top directory (-want +got):\n%s", test.binds, diff)
			}
			after := p.keptMountPoints()
			if diff := cmp.Diff(test.kept, slices.Sorted(maps.Keys(after)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v: kept (-want +got):\n%s", test.binds, diff)
			}
			if changed := len(p.leftRoots()) > len(left); changed != test.changed {
				t.Errorf("%v: it has left a changed root: %t", test.binds, changed)
			}
			if renamed, had := slices.Sorted(maps.Values(after)), slices.Sorted(maps.Values(before)); len(after) > 0 && len(after) <= len(before) && !test.changed {
				for _, inode := range renamed {
					if !slices.Contains(had, inode) {
						t.Errorf("%v: %v were made anew: before, there were %v", test.binds, after, before)
						break
					}
				}
			}
			before = after
		}
	})
}

// Where directories cannot be renamed, mount points are made.
func TestMountPointsOfAPlaceThatCannotBeRenamed(t *testing.T) {
	t.Parallel()
	image, source := shellImage(t), userDir(t)
	p := startPlaceOnHost(t, "true")
	p.forbidden = forbidden{unix.SYS_RENAMEAT2, unix.EXDEV}
	for _, name := range []string{"a", "b", "c"} {
		c := container.Container{SIF: image, Binds: []container.Bind{{Source: source, Target: "/" + name}}}
		if got := p.shell(c, "echo /[abc]"); got != "/"+name+"\n" {
			t.Errorf("with a bind to %s it sees %q", name, got)
		}
		if kept := slices.Collect(maps.Keys(p.keptMountPoints())); !slices.Equal(kept, []string{name}) {
			t.Errorf("after a bind to %s there are %v", name, kept)
		}
	}
}

// A container that reaches other processes could give them its root, and they could change it after its end.
func TestRootOfAContainerThatReachesOthersServesOneContainer(t *testing.T) {
	t.Parallel()
	image, source := shellImage(t), userDir(t)
	onEachPlace(t, func(t *testing.T, p *place) {
		want := 0
		for _, test := range []struct {
			network container.Network
			bind    container.Bind
			left    int
		}{
			{container.HostNetwork, container.Bind{}, 1},
			{container.NoNetwork, container.Bind{ReadOnly: true}, 0},
			{container.NoNetwork, container.Bind{ReadOnly: true, OfOthers: true}, 1},
		} {
			test.bind.Source, test.bind.Target = source, "/data"
			for range 2 {
				p.shell(container.Container{SIF: image, Network: test.network, Binds: []container.Bind{test.bind}}, "true")
				want += test.left
				if left := p.leftRoots(); len(left) != want {
					t.Errorf("%+v: %d roots are left, want %d", test, len(left), want)
				}
			}
		}
	})
}

// The caller measures and removes what a command has written to its root.
func TestRootOfAPlaceIsInThePrivateDirectoryAtTheEnd(t *testing.T) {
	t.Parallel()
	image := container.Container{SIF: shellImage(t)}
	onEachPlace(t, func(t *testing.T, p *place) {
		r := p.begin(container.Container{SIF: image.SIF, ShellCommand: "echo text >/made; echo begun; while :; do sleep 0.01; done"})
		r.awaitBegun()
		find := func(pattern string) []string {
			found, err := filepath.Glob(filepath.Join(p.dir, pattern, "written", "upper", "made"))
			must(t, err)
			return found
		}
		if found := find("kept-*"); len(found) != 1 {
			t.Errorf("while the command runs, its file is at %v", found)
		}
		p.order(placeOrder{Stop: true})
		p.end()
		if found := find("container-*"); len(found) != 1 || len(find("kept-*")) > 0 {
			t.Errorf("at its end, its file is at %v", slices.Concat(found, find("kept-*")))
		}
	})
}
