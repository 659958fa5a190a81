// Package cachetest tests what a cache promises, on any file system:
//
//	func TestMain(m *testing.M) { cachetest.Main(); os.Exit(m.Run()) }
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		cachetest.Run(t, cachetest.Site{Hosts: []string{dir, dir}, …})
//	}
//
// There are two parts. The contract is tested by a few processes that do what
// they are told. The storm is some dozens of processes that use one cache at
// random, of which a fifth are killed and some are stopped for longer than a
// lease holds. Each writes a log on a plain disk; they are joined in the end.
//
// # What the storm proves
//
//   - Never a wrong byte. What is in the cache follows from its key, and is
//     compared byte by byte whenever it is read.
//   - Never a content removed or changed while it is pinned, also while it is
//     retired and another content of its key is in use. A process that pins reads
//     again and again until it unpins. A holder may outlive the process that
//     pinned for it: its contents are read after the process was killed, until
//     the holder is over.
//   - Never two contents of one key in use at once, and never one again after
//     another of the key was. Each fill stamps what it makes with its own number. A
//     Get that returns the stamp n says that n was in use at some instant between
//     its begin (less the time for which a host may see the past) and its end. From
//     the earliest end to the latest begin of all that returned n, it was n
//     throughout; when the spans of two stamps of one key meet, both were in use at
//     once. (It is the zone test of Gibbons and Korach for a register with unique
//     written values: it finds no fault where there is none, and each that
//     shows in what was returned.)
//   - The quota is never exceeded by more than one content. An auditor looks at
//     the file server's own disk twice in a row: what is there both times was
//     there at once.
//   - In the end there are no pins, every key can be had, and when all contents
//     are trimmed no file is left.
//
// Nothing here takes a listing for fresh, and nothing takes a call that failed
// for one that had no effect.
package cachetest

import (
	"cmp"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
)

// Site is a file system on which caches are tested.
type Site struct {
	// Hosts are the paths by which the hosts see one directory, in which each
	// test makes a cache of its own. At least two are given; on a plain disk
	// all are the same. Processes of each run as a host of its own.
	Hosts []string
	// Server is the same directory as the file server itself sees it, always
	// fresh. Empty means that Hosts[0] is always fresh.
	Server string
	// Options are those that follow from the file system: Settle and Term. The
	// tests choose the others.
	Options cache.Options
	// As is the user as whom the processes of a host run in the storm; nil is the user
	// who runs the test. Program is the test's program then, at a
	// place where they may run it, and Logs a directory where they may write.
	As            func(host int) *syscall.Credential
	Program, Logs string
	// Through, if it is set, returns the words that run a shell's command on a host, such as ssh
	// and the host's name: the hosts are machines then, and the storm runs there.
	// Hosts, Program and Logs are paths that mean the same on all of them and here. The machines'
	// clocks agree to a few milliseconds.
	Through func(host int) []string
	// Faulty means that calls fail now and then for no reason, after they had
	// their effect or before.
	Faulty bool
	// Storm is how much of it there is. CLTEST_STORM=200x5000 in the environment
	// sets Processes and Gets, and 200x5000@7 the seed too; under -short there is
	// little of it.
	Storm Storm
}

// Storm is the size of a storm.
type Storm struct {
	// Processes run at once. Default 60.
	Processes int
	// Gets is how often they get a content. They go on for as long as that takes, and
	// until each promise was put to the test. Default 300.
	Gets int64
	// Seed decides what each process does, and which are killed. Default 1.
	Seed uint64
}

// Run runs all tests on the site.
func Run(t *testing.T, s Site) {
	t.Helper()
	Contract(t, s)
	t.Run("Storm", func(t *testing.T) { RunStorm(t, s) })
}

// Contract runs the tests of what each call promises. The file system of the site is not
// a faulty one.
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

// server is the directory as it is.
func (s Site) server() string { return cmp.Or(s.Server, s.Hosts[0]) }
