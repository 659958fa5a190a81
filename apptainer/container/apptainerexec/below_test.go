package apptainerexec

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
)

func TestWritableMountsBelowReadOnlyBindsAreBoundReadOnly(t *testing.T) {
	t.Parallel()
	const mounts = `22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:20 / /dev rw - tmpfs tmpfs rw
24 23 0:21 / /dev/full rw - tmpfs tmpfs rw
25 23 0:22 / /dev/zero rw - tmpfs tmpfs rw
26 23 0:23 / /dev/null ro - tmpfs tmpfs rw
27 23 0:24 / /dev/tty rw - autofs tmpfs rw
28 23 0:25 / /dev/no\040such rw - tmpfs tmpfs rw
`
	binds := []container.Bind{
		{Source: "/dev", Target: "/devices", ReadOnly: true},
		{Source: "/dev", Target: "/writable"},
		{Source: "/etc/hosts", Target: "/devices/zero"}, // covers a mount
	}
	want := append(binds[:len(binds):len(binds)], container.Bind{Source: "/dev/full", Target: "/devices/full", ReadOnly: true})
	if diff := cmp.Diff(want, addMountsBelow(binds, mounts)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
