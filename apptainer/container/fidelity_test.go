package container_test

import (
	"testing"
)

func TestTry(t *testing.T) {
	t.Parallel()
	onEachWay(t, func(t *testing.T, w way) {
		c := w.shellImage(t)
		c.ShellCommand = `id; pwd; env; ls -la /; cat /proc/1/comm; grep Cap /proc/self/status; touch /etc/x /usr/y /made; cat /proc/net/fib_trie | grep 127.0.0.1; ls -l /proc/self/fd; ls /proc; exit 0`
		t.Log(w.shell(t, c))
	})
}
