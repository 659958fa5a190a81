package diskspace

import "testing"

// The types of the file systems in Linux' include/uapi/linux/magic.h and in coreutils' stat.c, which the
// kernel gives out for a mounted one.
func TestNetworkFileSystemsAreKnownByTheirTypes(t *testing.T) {
	t.Parallel()
	for kind, want := range map[int64]string{
		0x6969: "NFS", 0xfe534d42: "SMB", 0xff534d42: "CIFS", 0x00c36400: "CephFS", 0x01021997: "9p", 0x65735546: "FUSE",
		0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0xaad7aaea: "PanFS",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x794c7630: "", 0x01021994: "", // ext4, XFS, Btrfs, overlay, tmpfs
	} {
		if got := networks()[kind]; got != want {
			t.Errorf("%#x is %q, want %q", kind, got, want)
		}
	}
}

// Weka publishes no number of its file system.
func TestNetworkFileSystemWithoutANumberIsKnownByItsName(t *testing.T) {
	t.Parallel()
	const mounts = "22 1 0:20 / / rw - ext4 /dev/sda1 rw\n23 22 0:21 / /weka rw - wekafs default rw\n24 23 0:22 / /weka/local rw - xfs /dev/sdb rw\n"
	for path, want := range map[string]string{"/weka/ann": "WekaFS", "/weka": "WekaFS", "/wekax": "", "/weka/local/x": "", "/home": ""} {
		if got := networkOf(mounts, path); got != want {
			t.Errorf("%s is on %q, want %q", path, got, want)
		}
	}
}
