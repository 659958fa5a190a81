package container_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

// startOnHost runs a container on a host that a preparation has changed.
func startOnHost(tb testing.TB, preparation string, c container.Container) *run {
	tb.Helper()
	return startUnder(tb, way{}, c, "unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", preparation+"; exec "+self+" "+runAsUser)
}

func TestHostThatCannotRunContainersSaysWhatTheSiteMustAllow(t *testing.T) {
	t.Parallel()
	image := shellImage(t)
	for _, tt := range []struct{ name, preparation, want string }{
		{"no fuse", "mount -t tmpfs none /dev", "this node has no /dev/fuse, which images are mounted by: its kernel module fuse has to be loaded"},
		{"fuse not ours", "mount --bind /dev/full /dev/fuse; mount -o remount,bind,ro,nodev /dev/fuse", "this node does not let ordinary users open /dev/fuse, which images are mounted by: its mode has to be 0666"},
		{"no user namespaces", "echo 0 >/proc/sys/user/max_user_namespaces", "this node does not let ordinary users make user namespaces: user.max_user_namespaces has to be above 0"},
		{"no bubblewrap", "mount --bind /dev/null $(command -v bwrap)", "this node lacks the program bwrap: its package bubblewrap has to be installed"},
		{"no squashfuse", "for p in squashfuse squashfuse_ll; do mount --bind /dev/null $(command -v $p); done", "this node lacks the program squashfuse_ll: its package squashfuse has to be installed"},
		{"broken squashfuse", "mount --bind /bin/false $(command -v squashfuse_ll)", "squashfuse, which serves the image's files, has ended (exit status 1)"},
		{"broken bubblewrap", "mount --bind /bin/false $(command -v bwrap)", "bubblewrap could not set the container up"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answer := startOnHost(t, tt.preparation, container.Container{SIF: image, Args: []string{"true"}}).wait()
			if !strings.Contains(answer.Error, tt.want) || strings.Contains(answer.Error, "\n") {
				t.Errorf("%+v, want the sentence %q", answer, tt.want)
			}
		})
	}
}
