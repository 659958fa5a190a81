package sharedfiles

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/spool"
)

// OpenError says that others can write to a path of the bridge's own, or replace it. What they put there acts as the
// bridge's account: jobs start programs of the shared directory, and the bridge believes the records there.
type OpenError struct {
	// Key is the key of the configuration that names the path.
	Key string
	// Fault is an error of [strictmodes.Account.Check].
	Fault error

	file bool // the configuration is a file, which can have the key trust
}

// Error returns a sentence with the cure.
func (e *OpenError) Error() string {
	if cure := e.Cure(); cure != "" {
		return fmt.Sprintf("%s: %s: %s", e.Key, e.Found(), cure)
	}
	return e.Key + ": " + e.Found()
}

// Unwrap returns the fault.
func (e *OpenError) Unwrap() error { return e.Fault }

// Found returns the finding without the cure.
func (e *OpenError) Found() string {
	if f, ok := errors.AsType[*strictmodes.Error](e.Fault); ok {
		return f.Found + ", and so run programs as this account"
	}
	return e.Fault.Error()
}

// Cure returns what to do; empty if that is not known.
func (e *OpenError) Cure() string {
	f, ok := errors.AsType[*strictmodes.Error](e.Fault)
	switch {
	case !ok:
		return ""
	case f.Who != "" && e.file:
		return fmt.Sprintf("%s; or write trust = [%q] if they may act as you", f.Cure, f.Who)
	}
	return f.Cure
}

// CheckOwn returns an *OpenError for each place at which others can write to the paths of a bridge's own, or replace
// them. Paths that do not exist are judged by the directories above them.
//
// The group of a group's cache may write there: its members may run code in each other's name.
func CheckOwn(c config.Config) []*OpenError {
	account, err := strictmodes.Current().Trust(c.Trust...)
	if err != nil {
		return []*OpenError{{Key: "trust", Fault: err}}
	}
	var open []*OpenError
	var told []string // places
	for _, own := range ownPaths(c) {
		of := account
		if own.key == "cache.dir" && c.Cache.Group {
			of = trustGroupOf(of, own.path)
		}
		err := of.Check(own.path)
		fault, ok := errors.AsType[*strictmodes.Error](err)
		if err == nil || ok && slices.Contains(told, fault.At) {
			continue
		}
		if ok {
			told = append(told, fault.At)
		}
		open = append(open, &OpenError{Key: own.key, Fault: err, file: c.Path != ""})
	}
	return open
}

// ownPath is a path that a key of the configuration names.
type ownPath struct{ key, path string }

// ownPaths returns the paths at which nobody else may write.
func ownPaths(c config.Config) []ownPath {
	layout := spool.Layout(c.Shared)
	paths := []ownPath{{"shared", c.Shared}, {"shared", layout.BridgeDir()}}
	for _, dir := range layout.Directories() {
		if dir != layout.Cache() {
			paths = append(paths, ownPath{"shared", dir})
		}
	}
	paths = append(paths, ownPath{"cache.dir", cmp.Or(c.Cache.Dir, layout.Cache())})
	if !sqldb.IsURL(c.Ledger) && c.Ledger != "" {
		paths = append(paths, ownPath{"ledger", filepath.Dir(c.Ledger)}, ownPath{"ledger", c.Ledger})
	}
	if c.Path != "" {
		paths = append(paths, ownPath{"configuration", c.Path})
	}
	return paths
}

// trustGroupOf trusts the group of a directory.
func trustGroupOf(a strictmodes.Account, dir string) strictmodes.Account {
	info, err := os.Stat(dir)
	if err != nil {
		return a // it is judged by its parents
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if trusting, err := a.Trust("@" + strconv.Itoa(int(stat.Gid))); err == nil {
			return trusting
		}
	}
	return a
}
