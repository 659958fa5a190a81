package realsite_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A cache keeps its promises if each host has a kernel of its own. The tests of package cache run on
// the file server, as the researcher: the contract on two mounts of the server's own, the storm with
// processes on both nodes.
func TestCacheKeepsItsPromisesBetweenKernels(t *testing.T) {
	s := realSite(t)
	program := s.cacheProgram(t)
	s.on(t, fileServer, `set -e
mountpoint -q /shared || mount --bind /srv/shared /shared
cp /etc/ssh/keys/id /tmp/id && chown researcher /tmp/id && chmod 600 /tmp/id`)
	// ESTALE, sizes, absence: the two versions differ in all of them.
	for _, version := range []string{"4.2", "3"} {
		t.Run("v"+version, func(t *testing.T) {
			s.testCache(t, version, program)
		})
	}
}

func (s site) testCache(t *testing.T, version string, program []byte) {
	t.Helper()
	dir := "/srv/shared/researcher/cache-v" + version
	at := "/mnt/v" + version // where the machines of the storm have it
	mount := func(place, options string) string {
		return "mkdir -p " + place + " && mount -t nfs -o " + options + " fs:/srv/shared " + place + "\n"
	}
	// The server takes two mounts of 4.2 for one client, from which it calls no delegation back.
	second := map[string]string{"4.2": "4.1", "3": "3"}[version]
	// A client of this kernel that has a delegation for writing loses the times of files that it sets
	// (touch -d here, stat there). The test of the order in which contents are trimmed sets some.
	skip := map[string]string{"4.2": " -test.skip=/Contract/TrimTakesTheLeastRecentlyUsedDownToTheLow"}[version]
	s.copyTo(t, fileServer, "/tmp/cache.test", program)
	s.on(t, fileServer, "set -e\nrm -rf "+dir+"\nsetpriv --reuid researcher --regid researcher --clear-groups mkdir "+dir+"\n"+
		"install -m 0755 -o researcher -g researcher /tmp/cache.test "+dir+"/cache.test\n"+
		mount("/mnt/a", "nosharecache,vers="+version)+mount("/mnt/b", "nosharecache,vers="+second)+
		"mkdir -p "+at+" && mount --bind /srv/shared "+at)
	for _, node := range []string{"root@c1", "root@c2"} {
		s.on(t, node, "set -e\n"+mount(at, "vers="+version))
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for node, script := range map[string]string{
			"root@c1": "umount " + at, "root@c2": "umount " + at, fileServer: "umount /mnt/a /mnt/b " + at + " && rm -rf " + dir,
		} {
			if out, err := s.try(ctx, node, script); err != nil {
				t.Errorf("%s: %s: %v\n%s", node, script, err, out)
			}
		}
	})
	const below = "/researcher/cache-v"
	run := func(name, variables string) {
		t.Helper()
		out, err := s.try(t.Context(), fileServer, "cd /tmp && setpriv --reuid researcher --regid researcher --clear-groups env HOME=/tmp "+
			variables+" CLTEST_CACHE_SERVER="+dir+" "+dir+"/cache.test -test.v -test.parallel=30 -test.timeout=20m -test.run '^"+name+"$'"+skip+" 2>&1")
		t.Logf("%s\n%s", name, out)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	run("TestMountsKeepThePromises", "'CLTEST_CACHE_MOUNTS=/mnt/a"+below+version+" /mnt/b"+below+version+"'")
	run("TestMachinesKeepThePromises", "'CLTEST_CACHE_MACHINES=c1 c2' CLTEST_CACHE_DIR="+at+below+version+
		" 'CLTEST_CACHE_SSH=ssh -i /tmp/id -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"+
		" -o ControlMaster=auto -o ControlPath=/tmp/ssh-%h -o ControlPersist=5m'")
}

// cacheProgram builds the test program of package cache, for machines without Go.
func (s site) cacheProgram(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", path, "github.com/cl-slurm/cl-slurm/cache")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests of the cache: %v\n%s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
