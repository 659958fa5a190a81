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

// Kind is a kind of fault, or of behaviour that a local disk does not have.
type Kind string

// Kinds for a Fault.
const (
	// LostReply is a call that the server has done, but whose reply is lost. At random, the client
	// either sends the call again, or gives up with EIO, as nfs(5) describes for soft mounts. The
	// server does a repeated call again, and so collides with its own work (RFC 1813, 4.5: a server
	// without its duplicate request cache).
	LostReply Kind = "lost reply"
	// StaleHandle is the answer NFS3ERR_STALE: the file is gone from the server. It needs no Fault.
	// Without one, the client looks the name up again. With one, it trusts the name of such a file
	// until its directory is revalidated, so that the program sees ESTALE.
	StaleHandle Kind = "stale handle"
	// IO and NoSpace fail a call with EIO and ENOSPC. The server does not do it.
	IO      Kind = "EIO"
	NoSpace Kind = "ENOSPC"
	// NoSuchCall fails a call with EOPNOTSUPP, as a server without it does (RFC 1813:
	// NFS3ERR_NOTSUPP, for LINK).
	NoSuchCall Kind = "EOPNOTSUPP"
	// Slow delays a call, by up to 20 ms.
	Slow Kind = "slow"
)

const slowest = 20 * time.Millisecond

// Kinds that are only counted. They come from NFS itself, and from Options.
const (
	// StaleAttributes, StaleName, StaleAbsence and StaleListing are outdated answers from a
	// client's cache: old attributes; a name that is gone or means another file; a name that is
	// called absent but exists; an old listing.
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
	FsStat   Op = "fsstat"
	Open     Op = "open" // the GETATTR of an open (close-to-open)
	// FsyncDir is fsync(2) of a directory, for which NFS needs no call. Some other file systems do
	// not have it. Only a NoSuchCall fault that names it strikes it.
	FsyncDir Op = "fsyncdir"
)

// Fault makes some calls go wrong at random.
type Fault struct {
	Kind Kind
	// Rate is the share of the selected calls that it strikes: 1 is all.
	Rate float64
	// Ops selects calls. If it is empty, the kind does: Slow selects all calls, LostReply those
	// that change names and attributes, and the errors WRITE. An error of WRITE appears in
	// write(2), fsync(2) or close(2), depending on the client's buffering.
	Ops []Op
}

// meant reports whether the fault selects a call.
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

// faults chooses the calls to strike, and counts.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	active []Fault
	counts map[Kind]int
}

func newFaults(seed uint64) *faults {
	return &faults{random: rand.New(rand.NewPCG(seed, 1)), counts: map[Kind]int{}}
}

// inject replaces the active faults.
func (f *faults) inject(active []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = active
}

// count adds one to a kind.
func (f *faults) count(kind Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[kind]++
}

// strike reports whether a fault of this kind strikes this call. It counts the fault, unless it is
// StaleHandle, which call counts.
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

// part returns a random number below 1.
func (f *faults) part() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Float64()
}

// call makes one call to the server, with the faults. It reports whether there was a reply. Without
// one, the client must ignore the results of do.
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

// total returns the count of each kind.
func (f *faults) total() map[Kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}
