package nfstest

import (
	"errors"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/linkonce"
)

func TestServerWithoutACallIsFoundUnfit(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	if err := linkonce.Try(s.a); err != nil {
		t.Error(err)
	}
	for _, op := range []Op{Link, FsyncDir} {
		s.Inject(Fault{Kind: NoSuchCall, Rate: 1, Ops: []Op{op}})
		if err := linkonce.Try(s.a); !errors.Is(err, linkonce.ErrUnfit) || !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("without %s: %v", op, err)
		}
	}
	s.Inject(Fault{Kind: IO, Rate: 1, Ops: []Op{Link}})
	if err := linkonce.Try(s.a); errors.Is(err, linkonce.ErrUnfit) || !errors.Is(err, syscall.EIO) {
		t.Errorf("while the server fails: %v", err)
	}
}
