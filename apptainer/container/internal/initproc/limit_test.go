package initproc

import (
	"strings"
	"testing"
)

func TestKernelsThatCountProcessesOfAUserNamespaceApart(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{
		"6.18.44": true, "5.14.0-362.8.1.el9_3.x86_64": true, "5.15-rc1": true, "10.0": true,
		"5.13.19-1-pve": false, "5.4.0-192-generic": false, "4.18.0-553.el8_10.x86_64": false, "3.10.0": false, "6": false, "": false, "unknown.20": false,
	} {
		if got := releaseCountsApart(release); got != want {
			t.Errorf("%q: %v, want %v", release, got, want)
		}
	}
}

func TestHostThatCannotBoundProcessesIsNamed(t *testing.T) {
	t.Parallel()
	const all, own = "         0          0 4294967295\n", "         0       1001          1\n"
	for _, tt := range []struct {
		release string
		uid     int
		ids     string
		want    string
	}{
		{"6.1.0", 1001, all, ""},
		{"6.1.0", 0, own, ""},
		{"6.1.0", 0, all, "the worker is root of this node"},
		{"5.10.0", 1001, all, "this node has Linux 5.10.0, which counts the processes of a user on the whole node"},
		{"4.18.0-553.el8_10.x86_64", 0, all, "this node has Linux 4.18.0-553.el8_10.x86_64"},
	} {
		err := checkProcesses(tt.release, tt.uid, tt.ids, nil)
		if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// Its copy in a new user namespace, which the standard library makes by fork(2), would crash.
func TestProcessThatKeepsItsHeapBackStartsNoSuchCopy(t *testing.T) {
	t.Parallel()
	p := &Process{keeper: &keeper{frame: &Frame{}}}
	if pid, err := p.StartBounded([]string{"/no/such"}, nil, false); err == nil || !strings.Contains(err.Error(), "starts programs by StartFirst") {
		t.Errorf("process %d, %v", pid, err)
	}
}
