package cache_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cache/cachetest"
)

// internal/realsite runs the two tests on a file server, with a copy of this program. The server
// also has the clients' paths.

// siteOptions suit a disk whose hosts see a state that is seconds old.
func siteOptions() cache.Options {
	return cache.Options{Settle: 3 * time.Second, Term: 20 * time.Second}
}

// siteDirs returns the paths in a variable, and the directory as the server sees it.
func siteDirs(t *testing.T, variable string) (dirs []string, server string) {
	t.Helper()
	dirs, server = strings.Fields(os.Getenv(variable)), os.Getenv("CLTEST_CACHE_SERVER")
	if len(dirs) < 2 || server == "" {
		t.Skip("only internal/realsite runs it")
	}
	return dirs, server
}

// CLTEST_CACHE_MOUNTS are two mounts of the server's directory on one machine.
func TestMountsKeepThePromises(t *testing.T) {
	t.Parallel()
	mounts, server := siteDirs(t, "CLTEST_CACHE_MOUNTS")
	cachetest.Contract(t, cachetest.Site{Hosts: mounts, Server: server, Options: siteOptions()})
}

// CLTEST_CACHE_MACHINES are machines that have the directory CLTEST_CACHE_DIR, with this program in
// it, and that ssh reaches.
func TestMachinesKeepThePromises(t *testing.T) {
	t.Parallel()
	machines, server := siteDirs(t, "CLTEST_CACHE_MACHINES")
	dir := os.Getenv("CLTEST_CACHE_DIR")
	logs := filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	cachetest.RunStorm(t, cachetest.Site{
		Hosts: []string{dir, dir}, Server: server, Options: siteOptions(),
		Program: filepath.Join(dir, filepath.Base(os.Args[0])), Logs: logs,
		Storm: cachetest.Storm{Processes: 12, Gets: 200},
		Through: func(host int) []string {
			return append(strings.Fields(os.Getenv("CLTEST_CACHE_SSH")), machines[host])
		},
	})
}
