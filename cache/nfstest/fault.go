package nfstest

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Kind is something that goes wrong, or that NFS does and a local disk does
// not.
type Kind string

// The kinds that a Fault can have.
const (
	// LostReply is a call that the server has done and whose reply the client
	// did not get. By the toss of a coin the client sends the call again, which
	// the server does again, and so finds its own work in the way (RFC 1813,
	// 4.5: a server without its duplicate request cache); or it gives up, with
	// EIO, as nfs(5) has it for soft mounts.
	LostReply Kind = "lost reply"
	// StaleHandle is an answer NFS3ERR_STALE: the file is gone from the server.
	// It needs no Fault. A Fault makes the client go on believing in the name
	// of such a file until its directory is revalidated, so that ESTALE gets
	// through to the program; without one a name is looked up again.
	StaleHandle Kind = "stale handle"
	// IO and NoSpace fail a call that the server does not do, with EIO and ENOSPC.
	IO      Kind = "EIO"
	NoSpace Kind = "ENOSPC"
	// NoSuchCall fails a call that the server does not have, with EOPNOTSUPP
	// (RFC 1813: NFS3ERR_NOTSUPP, for LINK).
	NoSuchCall Kind = "EOPNOTSUPP"
	// Slow delays a call, by up to 20 ms.
	Slow Kind = "slow"
)

const slowest = 20 * time.Millisecond

// The kinds that are counted only: they come from the way NFS is, and from
// Options.
const (
	// StaleAttributes, StaleName, StaleAbsence and StaleListing are answers
	// from a client's cache that the server would not have given: old
	// attributes, a name that is gone or leads to another file by now, a name
	// said to be absent that is there, a directory as it was.
	StaleAttributes Kind = "stale attributes"
	StaleName       Kind = "stale name"
	StaleAbsence    Kind = "stale absence"
	StaleListing    Kind = "stale listing"
	// SillyRename is the removal of an open file that became a rename.
	SillyRename Kind = "silly rename"
)

// Op is a call to the server, by the name of its procedure in RFC 1813.
type Op string

// The calls.
const (
	GetAttr  Op = "getattr"
	SetAttr  Op = "setattr"
	LookUp   Op = "lookup"
	ReadLink Op = "readlink"
	Read     Op = "read"
	Write    Op = "write"
	Create   Op = "create" // with O_EXCL or without
	MkDir    Op = "mkdir"
	SymLink  Op = "symlink"
	Remove   Op = "remove"
	RmDir    Op = "rmdir"
	Rename   Op = "rename"
	Link     Op = "link"
	ReadDir  Op = "readdir"
	Open     Op = "open" // the GETATTR of an open: close-to-open
	// FsyncDir is fsync(2) of a directory, for which NFS needs no call. Other file systems lack it:
	// only NoSuchCall strikes it, where a Fault names it.
	FsyncDir Op = "fsyncdir"
)

// Fault is something that goes wrong now and then.
type Fault struct {
	Kind Kind
	// Rate is how many of the calls that are meant it strikes: 1 is all.
	Rate float64
	// Ops are the calls that are meant. Without any they are those that suit
	// the kind: all for Slow, what changes names and attributes for LostReply,
	// WRITE for the errors. An error of WRITE appears in write(2),
	// fsync(2) or close(2), as the client's buffering has it.
	Ops []Op
}

// meant reports whether a call is one that the fault is for.
func (f Fault) meant(op Op) bool {
	switch {
	case len(f.Ops) > 0:
		return slices.Contains(f.Ops, op)
	case f.Kind == LostReply:
		return slices.Contains([]Op{SetAttr, Create, MkDir, SymLink, Remove, RmDir, Rename, Link}, op)
	default:
		return f.Kind == Slow || f.Kind == StaleHandle || op == Write
	}
}

// faults decides which calls are struck, and counts.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	active []Fault
	counts map[Kind]int
}

func newFaults(seed uint64) *faults {
	return &faults{random: rand.New(rand.NewPCG(seed, 1)), counts: map[Kind]int{}}
}

// inject replaces the faults that are active.
func (f *faults) inject(active []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = active
}

// count notes one more of a kind.
func (f *faults) count(kind Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[kind]++
}

// strike returns whether a fault of this kind strikes this call. A stale handle
// is counted where it happens.
func (f *faults) strike(kind Kind, op Op) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.active {
		if a.Kind == kind && a.meant(op) && f.random.Float64() < a.Rate {
			if kind != StaleHandle {
				f.counts[kind]++
			}
			return true
		}
	}
	return false
}

// part is a random number below 1.
func (f *faults) part() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Float64()
}

// call does one call to the server, through the faults. It returns whether
// there was a reply: without one the client knows nothing of what the server
// has done. What do has returned counts only if there was one.
func (f *faults) call(op Op, do func() error) (replied bool, err error) {
	if f.strike(Slow, op) {
		time.Sleep(time.Duration(f.part() * float64(slowest)))
	}
	if f.strike(IO, op) {
		return false, syscall.EIO
	}
	if f.strike(NoSpace, op) {
		return false, syscall.ENOSPC
	}
	if f.strike(NoSuchCall, op) {
		return false, syscall.EOPNOTSUPP
	}
	if err = do(); err == nil && f.strike(LostReply, op) {
		if f.part() < 0.5 {
			return false, syscall.EIO
		}
		err = do()
	}
	if errors.Is(err, syscall.ESTALE) {
		f.count(StaleHandle)
	}
	return true, err
}

// total is how often each kind has happened.
func (f *faults) total() map[Kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
