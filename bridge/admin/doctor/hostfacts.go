package doctor

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/caches"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/clocks"
	"github.com/cl-slurm/cl-slurm/internal/disktrial"
	"github.com/cl-slurm/cl-slurm/internal/purgers"
	"github.com/cl-slurm/cl-slurm/internal/subids"
	"github.com/cl-slurm/cl-slurm/internal/subpath"
	"github.com/cl-slurm/cl-slurm/internal/tickets"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/worker/probe"
)

// hostKey returns the name of a check that is about the bridge's host.
func hostKey(name string) string { return "host." + name }

// ofHost names checks of package probe as those of the bridge's host.
func ofHost(checks []Check) []Check {
	for i := range checks {
		checks[i].Name = hostKey(checks[i].Name)
	}
	return checks
}

// sharedDisk checks what the shared disk does on this host, and whether its files can vanish.
func (e *Examination) sharedDisk(ctx context.Context) {
	c := e.Config
	features, err := disktrial.Try(ctx, c.Shared)
	if err != nil {
		e.add(warning(hostKey("links"), err.Error(), "try again; cl-worker probe --shared "+c.Shared+" tries it, too"))
		return
	}
	e.add(ofHost(probe.CheckDisk(c.Shared, features))...)
	if o, err := clocks.OfDisk(c.Shared, e.Now); err == nil {
		e.diskClock = &o
		e.add(DiskClock(o))
	}
	held := tickets.Look(ctx, probe.TicketEnv(e.Getenv), e.Now())
	e.add(ofHost(probe.CheckTickets(c.Shared, features, held, probe.Longest(e.longest()), e.Now()))...)
	dirs := []string{c.Shared}
	if e.CacheDir != "" && !subpath.Within(e.CacheDir, c.Shared) {
		dirs = append(dirs, e.CacheDir)
	}
	for _, dir := range dirs {
		e.add(ofHost(probe.CheckPurges("purges", dir, purgers.Find("/", dir), 0))...)
	}
	e.add(e.betweenCacheAndRuns()...)
	if e.Cached != nil {
		e.add(Vanished(e.vanished(ctx)))
	}
}

// longest returns the time that a run of any queue may take; 0 means that it has no bound.
func (e *Examination) longest() (most time.Duration) {
	for _, q := range e.Config.Plan() {
		of := longest(q)
		if of == 0 {
			return 0
		}
		most = max(most, of)
	}
	return most
}

// betweenCacheAndRuns checks the way of files from the cache to working directories, where they are on several disks. The
// bridge makes both directories when it starts.
func (e *Examination) betweenCacheAndRuns() []Check {
	from, to := e.CacheDir, spool.Layout(e.Config.Shared).Runs()
	if from == "" || !isDir(from) || !isDir(to) {
		return nil
	}
	p, err := disktrial.Between(from, to)
	if err != nil {
		return []Check{warning("cache.dir", "the way of files from the cache to working directories could not be tried: "+err.Error(), "may this account write to both?")}
	}
	return []Check{Paired(from, to, p)}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Paired judges the way of files from the cache to working directories.
func Paired(from, to string, p disktrial.Pair) Check {
	const name = "cache.dir"
	switch {
	case p.Clone == "":
		return ok(name, "files of %s get to %s by reflinks", from, to)
	case p.HardLinks == "":
		return ok(name, "files of %s can be linked to %s; there are no reflinks (%s)", from, to, p.Clone)
	}
	return ok(name, "files of %s have to be copied to %s (%s)", from, to, p.HardLinks).Meaning("that takes the time and the room of a copy; a cache on the disk of shared takes less")
}

// vanishedFiles bounds the files of the cache to look at.
const vanishedFiles = 20_000

// Vanish has the findings of a look at the cache: its directory, its number of contents, and those of which files are gone,
// with the path of one.
type Vanish struct {
	Dir      string
	Contents int
	Gone     int
	One      string
	Err      error
}

func (e *Examination) vanished(ctx context.Context) Vanish {
	v := Vanish{Dir: e.CacheDir}
	var entries []cache.Entry
	if entries, v.Err = e.Cached(ctx); v.Err == nil {
		v.Contents = len(entries)
		v.Gone, v.One, v.Err = caches.Vanished(ctx, entries, vanishedFiles)
	}
	return v
}

// Vanished judges whether something else than the cache removes its files.
func Vanished(v Vanish) Check {
	const name = "cache"
	switch {
	case v.Err != nil:
		return warning(name, "its contents could not be looked at: "+v.Err.Error(), "cl-bridge cache verify")
	case v.Gone > 0:
		return probe.Fault(Failed, name, fmt.Sprintf("of %d contents of %s, %d lack files, such as %s: something else than the bridge removes files there", v.Contents, v.Dir, v.Gone, v.One),
			"runs that use them fail, or miss files of their inputs", "cl-bridge cache verify makes them anew; have the site exempt the directory from its purge, or name another as cache.dir")
	}
	return ok(name, "of the contents of %s, %d, none lacks files", v.Dir, v.Contents)
}

// ownIDs returns the subordinate ids of this account on this host, or "".
func ownIDs() string {
	ids, err := subids.Find()
	if err != nil {
		return ""
	}
	return ids.String()
}
