package container_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// The links of a hostile image are followed inside the image.
func TestImagesLinksLeadNowhereOutside(t *testing.T) {
	t.Parallel()
	victim, source := userDir(t), userDir(t)
	must(t, os.WriteFile(filepath.Join(source, "f"), []byte("bound\n"), 0o644))
	up := strings.Repeat("../", 20)
	files := slices.DeleteFunc(smallRoot(t), func(f imagetest.File) bool { return f.Name == "etc/resolv.conf" })
	files = append(files,
		imagetest.Symlink("etc/resolv.conf", "/oldroot"+victim+"/resolv.conf"),
		imagetest.Symlink("etc/hosts", victim+"/hosts"),
		imagetest.Symlink("absolute", victim),
		imagetest.Symlink("relative", up+victim[1:]),
		imagetest.Symlink("old", "/oldroot"+victim),
		imagetest.Symlink("loop", "loop"),
		imagetest.Symlink("dev", victim),
		imagetest.Symlink("sys", "/oldroot"+victim))
	got := shell(t, container.Container{
		SIF:     sif(t, v1.Config{Env: []string{"PATH=/bin"}}, files...),
		Network: container.HostNetwork,
		Dir:     "/old/made",
		Binds: []container.Bind{
			{Source: source, Target: "/absolute/a"},
			{Source: source, Target: "/relative/b", ReadOnly: true},
			{Source: filepath.Join(source, "f"), Target: "/old/c"},
		},
		ShellCommand: "cat /absolute/a/f /relative/b/f /old/c; pwd; test -c /dev/null && test -d /sys/class && echo mounts",
	})
	if want := "bound\nbound\nbound\n/oldroot" + victim + "/made\nmounts\n"; got != want && got != strings.Replace(want, "/oldroot"+victim, "/old", 1) {
		t.Errorf("output %q, want %q", got, want)
	}
	if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
		t.Errorf("the host's directory holds %v, %v", left, err)
	}
}
