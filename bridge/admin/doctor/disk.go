package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
)

// isSilent is the advice about a disk that does not answer.
const isSilent = "its server may be down, or cut off from this host; other checks of the disk are skipped"

// Shared judges the shared directory on this host. trouble is the error of a write to it from this host; space
// is the room on its disk.
func Shared(path string, trouble error, space spool.Space, lowWater plan.LowWater) []Check {
	if silent := new(diskspace.SilentError); errors.As(trouble, &silent) {
		return []Check{unreachable("shared", trouble.Error(), isSilent)}
	}
	if errors.Is(trouble, linkonce.ErrUnfit) {
		return []Check{failed("shared", trouble.Error(), sharedfiles.OtherDisk)}
	}
	if trouble != nil {
		return []Check{failed("shared", trouble.Error(), fmt.Sprintf("name a directory that login and compute nodes share, and that is yours: mkdir -p -m 700 %s", path))}
	}
	checks := []Check{ok("shared", "%s can be written to here", path)}
	if lack := lowWater.Lack(space, false); lack != "" {
		return append(checks, failed("low_water", lack+": no bundle would be claimed", "make room, or write a lower low_water"))
	}
	return append(checks, ok("low_water", "%s are free, and %s have to stay free", codalab.FormatSize(space.Free), codalab.FormatSize(lowWater.Of(space.Total))))
}

// Own judges the owners of the bridge's own directories and files on this host, and who may write there.
func Own(c config.Config) []Check {
	open := sharedfiles.CheckOwn(c)
	if len(open) == 0 {
		who := "only you and root"
		if len(c.Trust) > 0 {
			who += " and, as trust says, " + strings.Join(c.Trust, ", ")
		}
		return []Check{ok("owners", "%s can write to %s, to the ledger's directory and to the configuration, or replace them", who, c.Shared)}
	}
	var checks []Check
	for _, o := range open {
		checks = append(checks, failed(o.Key, o.Found(), o.Cure()))
	}
	return checks
}

// Password judges the password's file.
func Password(path string, err error) Check {
	if err != nil {
		return failed("password_file", err.Error(), fmt.Sprintf("write the password of user into it, readable by you alone: (umask 077; cat > %s)", path))
	}
	return ok("password_file", "%s exists, and only you can read it", path)
}

// Token judges the token's file.
func Token(path string, err error) Check {
	if err != nil {
		return failed("token_file", err.Error(), fmt.Sprintf("write a token of the server into it, readable by you alone: (umask 077; cat > %s)", path))
	}
	return ok("token_file", "%s has a token, and only you can read it", path)
}

// LedgerFound is a finding about the ledger on this host.
type LedgerFound struct {
	// Where is the ledger's file or postgres://….
	Where string
	// Err is the error of reading the ledger; it wraps [ledger.ErrAbsent] where there is none yet.
	Err error
	// Running is set while a bridge works on it.
	Running bool
	// Unwritable is the error of making its file. InMemory is set if its file is on a file system that is gone
	// when this host restarts. A database has neither.
	Unwritable error
	InMemory   bool
}

// Ledger judges the ledger.
func Ledger(l LedgerFound) Check {
	name := sqldb.Name(l.Where)
	absent := errors.Is(l.Err, ledger.ErrAbsent)
	var found string
	switch {
	case l.Err != nil && !absent:
		c := failed("ledger", l.Err.Error(), "docs/operators/reference.md, The ledger")
		c.Unreachable = errors.Is(l.Err, sqldb.ErrUnavailable)
		return c
	case absent && l.Unwritable != nil:
		return failed("ledger", fmt.Sprintf("%s cannot be made: %v", name, l.Unwritable), "name another file as ledger, on a disk of this host")
	case absent && sqldb.IsURL(l.Where):
		found = name + " answers; the bridge makes its tables there"
	case absent:
		found = name + " is made when the bridge starts"
	case l.Running:
		found = name + ": a bridge works on it"
	default:
		found = name + " can be read"
	}
	if l.InMemory {
		return warning("ledger", found+", in memory: it is gone when this host restarts", "name a file on a disk of this host as ledger, or a database")
	}
	return ok("ledger", "%s", found)
}

// disks checks the shared directory, whether the cache's disk answers, and the ledger's place.
func (e *Examination) disks(ctx context.Context) {
	shared := e.Config.Shared
	trouble := Writable(ctx, shared)
	silent := new(diskspace.SilentError)
	e.silent = errors.As(trouble, &silent)
	if trouble == nil {
		trouble = linkonce.Try(shared)
	}
	var space diskspace.Space
	if trouble == nil {
		space, trouble = diskspace.Of(shared) // the bridge has not made its directories yet
	}
	e.writable = trouble == nil
	e.add(Shared(shared, trouble, space, e.Config.LowWater.LowWater)...)
	if !e.silent {
		err := diskspace.Answers(ctx, e.CacheDir)
		if e.silent = errors.As(err, &silent); e.silent {
			e.add(unreachable("cache.dir", err.Error(), isSilent))
		}
	}
	e.add(e.ledger(ctx))
}

// Writable returns why this user cannot write to a directory, or nil. The error wraps a
// *diskspace.SilentError if the directory's disk does not answer.
func Writable(ctx context.Context, dir string) error {
	if err := diskspace.Answers(ctx, dir); err != nil {
		return err
	}
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return fmt.Errorf("write to it: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// ledger checks whether the ledger can be read, or made.
func (e *Examination) ledger(ctx context.Context) Check {
	where := e.Config.Ledger
	found := LedgerFound{Where: where}
	var r *ledger.Reader
	if r, found.Err = ledger.OpenToRead(ctx, where); found.Err == nil {
		running, err := ledger.Locked(ctx, where)
		found.Running = err == nil && running
		_ = r.Close() // it was only read
	}
	if !sqldb.IsURL(where) {
		dir := diskspace.Nearest(filepath.Dir(where))
		found.InMemory = diskspace.InMemory(dir)
		if errors.Is(found.Err, ledger.ErrAbsent) {
			found.Unwritable = Writable(ctx, dir)
		}
	}
	return Ledger(found)
}
