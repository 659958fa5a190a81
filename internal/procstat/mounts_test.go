package procstat_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/procstat"
)

func TestMountsAreReadWithTheirNames(t *testing.T) {
	t.Parallel()
	got := procstat.Mounts(`22 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
cut short
31 22 0:26 /a\040b /mnt/with\040space\134 ro,nosuid - tmpfs tmpfs rw,size=4k
`)
	want := []procstat.Mount{
		{Device: "254:0", Root: "/", At: "/", Options: []string{"rw", "relatime"}, Type: "ext4", FileSystemOptions: []string{"rw", "discard"}},
		{Device: "0:26", Root: "/a b", At: `/mnt/with space\`, Options: []string{"ro", "nosuid"}, Type: "tmpfs", FileSystemOptions: []string{"rw", "size=4k"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The names of directories that users have made are in the text.
func FuzzMounts(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n")
	f.Add("1 2 3 4 5 6 - a b")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range procstat.Mounts(text) {
			if m.At == "" || m.Type == "" || len(m.Options) == 0 {
				t.Errorf("%q has the mount %+v", text, m)
			}
		}
	})
}

func TestPathIsOnTheLastMountAboveIt(t *testing.T) {
	t.Parallel()
	mounts := procstat.Mounts(`22 1 254:0 / / rw - ext4 /dev/vda rw
31 22 0:26 / /lab rw - nfs4 server:/lab rw,vers=4.2
32 22 0:27 / /lab/fast rw - lustre mgs:/fast rw
33 22 0:28 / /lab/fast rw - tmpfs covers rw
`)
	for path, want := range map[string]string{"/": "ext4", "/labs/x": "ext4", "/lab": "nfs4", "/lab/fastest": "nfs4", "/lab/fast/x": "tmpfs"} {
		if got, ok := procstat.MountAt(mounts, path); !ok || got.Type != want {
			t.Errorf("%s: %+v, want %s", path, got, want)
		}
	}
	if got, ok := procstat.MountAt(mounts[1:], "/home"); ok {
		t.Errorf("/home: %+v", got)
	}
}
