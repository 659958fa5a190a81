package nfstest

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// SetLk grants any lock at once, and keeps no account of it.
func (c *client) SetLk(_ <-chan struct{}, in *fuse.LkIn) fuse.Status {
	if in.Lk.Typ != syscall.F_UNLCK {
		c.faults.count(Lock)
	}
	return fuse.OK
}

// SetLkw never waits.
func (c *client) SetLkw(cancel <-chan struct{}, in *fuse.LkIn) fuse.Status {
	return c.SetLk(cancel, in)
}

// GetLk finds no lock.
func (c *client) GetLk(_ <-chan struct{}, in *fuse.LkIn, out *fuse.LkOut) fuse.Status {
	out.Lk = in.Lk
	out.Lk.Typ = syscall.F_UNLCK
	return fuse.OK
}
