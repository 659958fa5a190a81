package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// NetNS is a network namespace, which is like the network of another machine. Only root makes one.
type NetNS struct {
	file *os.File
	tid  int
}

// NewNetNS returns a network namespace with a loopback interface. It is gone after the test, with its sockets.
func NewNetNS(tb testing.TB) *NetNS {
	tb.Helper()
	Root(tb)
	var n NetNS
	made, end := make(chan error), make(chan struct{})
	ended := onOwnThread(func() { // returns at the test's end
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		n.tid = unix.Gettid()
		made <- err
		<-end // ip(8) finds the namespace by the thread
	})
	err := <-made
	tb.Cleanup(func() {
		close(end)
		<-ended
		_ = n.file.Close() // nil if there is none
	})
	need(tb, containers, err)
	n.IP(tb, "link set lo up")
	return &n
}

// Do calls a function on a thread in the namespace.
func (n *NetNS) Do(do func() error) error {
	var err error
	<-onOwnThread(func() {
		if err = n.enter(); err == nil {
			err = do()
		}
	})
	return err
}

// onOwnThread calls f on a thread that ends with f. That is not the main thread, which goes on after its functions and
// whose network is that of /proc/net.
func onOwnThread(f func()) (ended <-chan struct{}) {
	return background.Go(func() { // returns with f
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			<-onOwnThread(f) // this thread is taken
			runtime.UnlockOSThread()
			return
		}
		f()
	})
}

// enter brings the calling thread into the namespace.
func (n *NetNS) enter() error { return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET) }

// IP calls ip(8) in the namespace.
func (n *NetNS) IP(tb testing.TB, args string) {
	tb.Helper()
	Must(tb, n.Do(func() error {
		if said, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, said)
		}
		return nil
	}))
}

// Connect joins two namespaces by a cable. Each gets an address of the same network, such as 192.0.2.1/24.
func (n *NetNS) Connect(tb testing.TB, own string, to *NetNS, its string) {
	tb.Helper()
	n.IP(tb, "link add cable type veth peer name cable netns "+strconv.Itoa(to.tid))
	for at, address := range map[*NetNS]string{n: own, to: its} {
		at.IP(tb, "address add "+address+" dev cable")
		at.IP(tb, "link set cable up")
	}
}
