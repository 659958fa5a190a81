package initproc

import "testing"

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
