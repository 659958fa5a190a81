package assembly

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
	"github.com/cl-slurm/cl-slurm/staging/results"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// OrphanGrace is the age below which the bridge does not cancel an orphan job.
const OrphanGrace = 10 * time.Minute

// Policy returns the policy by which a bridge with this id would decide, for commands that only look.
func Policy(c config.Config, id string, programs sharedfiles.Programs) plan.Policy {
	return policy(c, id, spool.Layout(c.Shared), programs, 0)
}

// policy returns the policy of a bridge before Slurm's settings are known. submitBound is the
// longest duration of a submission.
func policy(c config.Config, id string, layout spool.Layout, installed sharedfiles.Programs, submitBound time.Duration) plan.Policy {
	p := plan.Policy{
		Bridge: id, Owner: c.User, Layout: layout, Worker: installed.Worker(), Queues: installed.Queues(c), Map: c.Mappings(),
		SubmitGrace:     submitBound + 20*time.Second,
		OrphanGrace:     OrphanGrace,
		CancelOrphans:   *c.CancelStrays,
		Settle:          c.DiskSettle.Duration,
		StuckFor:        5 * time.Second,
		StagePatience:   c.StagePatience.Duration,
		OutagePatience:  c.OutagePatience.Duration,
		CollectPatience: c.CollectPatience.Duration,
		QuotaPatience:   c.QuotaPatience.Duration,
		LongestAckPause: 10 * time.Minute,
		MaxAttempts:     c.MaxAttempts,
		KeepAfterAck:    c.KeepAfterAck.Duration,
		LowWater:        c.LowWater.LowWater,
	}
	// These values are safe while Slurm's settings are not known: sacct has to answer before a job
	// counts as absent, and without sacct no snapshot proves it.
	adapt(c.Slurm, &p, sbatch.Settings{Accounting: true, MinJobAge: longestRecordAge})
	if !p.Accounting {
		p.RecordAge = c.Slurm.MinJobAge.Or(0)
	}
	return p
}

// longestRecordAge also applies to a site that never purges ended jobs.
const longestRecordAge = time.Hour

// adapt sets the site's values: from the configuration, or else from Slurm.
func adapt(c config.Slurm, p *plan.Policy, s sbatch.Settings) {
	p.Accounting, p.SlurmVersion = c.HasAccounting(s.Accounting), s.Version
	site := cmp.Or(s.MinJobAge, longestRecordAge)
	p.RecordAge = min(c.MinJobAge.Or(site), site) // a purged job is absent, too
}

// DownloadPace bounds all downloads together.
func DownloadPace(c config.Config) *transfer.Pace { return transfer.NewPace(c.Staging.Bandwidth.Bytes) }

// addStager makes the stagers of bundles and of images, and the parts that they follow while the bridge runs.
func (made *parts) addStager(p program.Process, c config.Config, cl *client.Client, bridge string, now func() time.Time, convert Convert) {
	made.pace = DownloadPace(c)
	var public func(context.Context, string) (bool, error)
	if c.Cache.Group {
		public = cl.Public
	}
	made.links = dataInPlace(c, cl, spool.Layout(c.Shared), now)
	files, from := imageFiles(c, made.links), NewSource(c, p.Getenv, made.pace)
	from.OpenFile = files.Open
	im := NewImages(c, made.content, from)
	im.Files, im.Now, im.Convert = files, now, convert
	im.LowWater, im.Converter.Reserve = made.live.lowWater, made.live.lowWater
	made.Images = im
	made.Stager = &staging.Stager{
		Images: im,
		Dependencies: &inputs.Dependencies{
			Contents: cl,
			Cache:    made.content,
			Public:   public,
			Identity: cl.Identity,
			Limits:   made.live.dependency,
			LowWater: made.live.lowWater,
			AtOnce:   c.Staging.Downloads,
			Pace:     made.pace,
			Links:    made.links,
			Store:    serverStore(c),
			Layout:   spool.Layout(c.Shared),
		},
		Holder: func(bundle string) cache.Holder { return pins.RowHolder(bridge, bundle) },
	}
}

// collector returns the collector of results.
func (a Assembly) collector(l *live, now func() time.Time) *results.Collector {
	made := &results.Collector{Contents: a.Client, Store: serverStore(a.Config), Layout: spool.Layout(a.Shared), MaxBytes: l.results, Now: now}
	if a.Counts != nil {
		made.Sent = a.Counts.Sent
	}
	return made
}

// NewImages returns the stager of images for a cache.
func NewImages(c config.Config, content *cache.Cache, from source.Source) *images.Images {
	layout, converter := spool.Layout(c.Shared), c.Image.Converter()
	converter.Source, converter.Reserve = from, c.LowWater.Of
	return &images.Images{
		Cache: content, Converter: converter, Login: OwnerLogins(c, from),
		Kept:       images.Records(layout.KeptImages()),
		References: images.References{Dir: layout.ImageReferences()},
		Remember:   c.Image.Remember.Duration,
		Offline:    c.Image.Offline,
		AtOnce:     c.Image.Conversions,
		LowWater:   c.LowWater.Of,
		Now:        time.Now,
	}
}

// serverStore returns the server's own store, or nil if the bridge does not share the server's disk.
func serverStore(c config.Config) *results.Store {
	if c.ServerStore == "" {
		return nil
	}
	return &results.Store{Dir: filepath.Clean(c.ServerStore)}
}

// dataInPlace returns the finder of links' data.
func dataInPlace(c config.Config, cl *client.Client, layout spool.Layout, now func() time.Time) *inputs.Links {
	return &inputs.Links{Roots: linkRoots(c), Hidden: hiddenPaths(c), Catalog: cl, Records: layout.Link, Now: now}
}

func linkRoots(c config.Config) []inputs.LinkRoot {
	var roots []inputs.LinkRoot
	for _, l := range c.Link {
		roots = append(roots, inputs.LinkRoot{Path: filepath.Clean(l.Root), Users: l.Users})
	}
	return roots
}

// imageFiles returns the finder of SIFs that bundles use in place.
func imageFiles(c config.Config, links *inputs.Links) *images.Files {
	return &images.Files{
		Roots: c.Image.Roots, Hidden: hiddenPaths(c), Records: spool.Layout(c.Shared).SIFDigests(), OwnerRoots: links.RootsOf,
	}
}

// hiddenPaths returns the paths that no bundle may use in place: the bridge's own, and system
// directories without user data.
func hiddenPaths(c config.Config) []string {
	own := []string{c.Shared, c.Path}
	for _, path := range []string{c.PasswordFile, c.TokenFile, c.ServerStore, c.Cache.Dir, c.Image.Logins, c.Image.DockerConfig} {
		if path != "" {
			own = append(own, path)
		}
	}
	if !sqldb.IsURL(c.Ledger) {
		own = append(own, c.Ledger, c.Ledger+"-wal", c.Ledger+"-shm", c.Ledger+".lock")
	}
	hidden := config.SystemDirs()
	for _, path := range own {
		if absolute, err := filepath.Abs(path); err == nil {
			hidden = append(hidden, absolute)
		}
	}
	return hidden
}
