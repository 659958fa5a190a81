// Package cachetest tests the promises of package cache on any file system:
//
//	func TestMain(m *testing.M) { cachetest.Main(); os.Exit(m.Run()) }
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		cachetest.Run(t, cachetest.Site{Hosts: []string{dir, dir}, …})
//	}
//
// It has two parts. The contract uses a few processes that follow orders. The storm has some dozens
// of processes that use one cache at random. A fifth of them are killed, and some are stopped for
// longer than a lease lasts. Each process writes a log on a plain disk, and the test judges all
// logs together at the end.
//
// # What the storm proves
//
//   - No wrong byte. A content follows from its key, and every reading is
//     compared byte by byte.
//   - No pinned content is removed or changed, even if it is retired and
//     another content of its key is in use. A process that pins reads
//     again and again until it unpins. A holder may outlive the process that
//     pinned for it: its contents are read after the process was killed, until
//     the holder is over.
//   - A key never has two contents in use at the same time, and no content
//     comes back after another of its key was in use. Each fill stamps its
//     content with its own number. A Get that returns stamp n proves that n was
//     in use at some instant between its begin (less the time for which a host
//     may see an old state) and its end. So n was in use without a break from
//     the earliest end to the latest begin of all Gets that returned n. If the
//     spans of two stamps of one key overlap, both were in use at the same time.
//     (This is the zone test of Gibbons and Korach for a register with unique
//     written values: it reports no false fault, and each fault that the
//     returned values show.)
//   - The quota is exceeded by at most one content. An auditor lists the file
//     server's own disk twice in a row: files in both lists existed at the same
//     time.
//   - In the end there are no pins, every key can be got, and no file remains
//     after all contents are trimmed.
//
// The tests do not assume that listings are fresh, or that a failed call had no effect.
package cachetest

import (
	"cmp"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Site is a file system on which caches are tested.
type Site struct {
	// Hosts are the paths at which the hosts see one common directory. Each test makes its own
	// cache there. There are at least two; on a plain disk they are all the same path. The
	// processes of each path act as one host.
	Hosts []string
	// Server is the path of the same directory on the file server, which is always fresh. Empty
	// means that Hosts[0] is always fresh.
	Server string
	// Options sets Settle and Term for the file system. The tests choose the others.
	Options cache.Options
	// As returns the user for the processes of a host in the storm; nil means the test's own user.
	// With As, Program is the test's program at a path that these users may run, and Logs is a
	// directory that they may write.
	As            func(host int) *syscall.Credential
	Program, Logs string
	// Through, if it is set, returns the command that runs a shell's command on a host, such as ssh
	// and the host's name. Then the hosts are machines, and the storm runs there. Hosts, Program
	// and Logs are paths that are the same on all of them and here. The machines' clocks must agree
	// to a few milliseconds.
	Through func(host int) []string
	// Faulty means that the file system fails some calls at random, before or after their effect.
	Faulty bool
	// Storm is the size of the storm. CLTEST_STORM=200x5000 in the environment sets Processes and
	// Gets, and 200x5000@7 the seed, too. Under -short the storm is small.
	Storm Storm
}

// Storm is the size of a storm.
type Storm struct {
	// Processes run at the same time. Default 60.
	Processes int
	// The storm goes on until its processes have got Gets contents and each promise was tested.
	// Default 300.
	Gets int64
	// Seed determines the actions of each process, and the processes that are killed. Default 1.
	Seed uint64
}

// Run runs all tests on the site.
func Run(t *testing.T, s Site) {
	t.Helper()
	Contract(t, s)
	t.Run("Storm", func(t *testing.T) { RunStorm(t, s) })
}

// Contract tests the promises of each call. The file system of the site must not be a faulty one.
func Contract(t *testing.T, s Site) {
	t.Helper()
	t.Run("Contract", func(t *testing.T) {
		for name, test := range promises() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newTrial(t, s))
			})
		}
	})
}

// server returns the path on which the directory is always fresh.
func (s Site) server() string { return cmp.Or(s.Server, s.Hosts[0]) }
