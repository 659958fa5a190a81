package testenv

import (
	"os"
	"testing"
)

// The main thread's network is that of /proc/net, which other tests read.
func TestNetworkNamespacesLeaveTheMainThreadAlone(t *testing.T) {
	t.Parallel()
	before, err := os.Readlink("/proc/self/ns/net")
	Must(t, err)
	n := NewNetNS(t)
	for range 100 {
		var inside string
		Must(t, n.Do(func() (err error) {
			inside, err = os.Readlink("/proc/thread-self/ns/net")
			return err
		}))
		if after, err := os.Readlink("/proc/self/ns/net"); err != nil || after != before || inside == before {
			t.Fatalf("the process is in %s, %v, and was in %s; inside %s", after, err, before, inside)
		}
	}
}
