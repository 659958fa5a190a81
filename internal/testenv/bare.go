package testenv

import (
	"errors"
	"os"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
)

// BareSlurm starts a cluster of one node and without an accounting database, for one test. Its controller has no other
// callers. Only root can start it.
func BareSlurm(tb testing.TB) *slurmcluster.Bare {
	tb.Helper()
	Slurm(tb)
	if os.Geteuid() != 0 {
		need(tb, slurm, errors.New("only root starts daemons of Slurm"))
	}
	dir, err := os.MkdirTemp(sharedParent(tb), "bare-") // sockets have short paths
	Must(tb, errors.Join(err, os.Chmod(dir, 0o755)))
	tb.Cleanup(func() { Must(tb, os.RemoveAll(dir)) })
	b, err := slurmcluster.StartBare(tb.Context(), dir)
	Must(tb, err)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(b.Log())
		}
		if err := b.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
