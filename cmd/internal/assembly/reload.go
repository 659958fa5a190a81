package assembly

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/bridge/sharedfiles"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
)

// Rereading says when a bridge reads its configuration again, and how.
type Rereading struct {
	// Asked receives when the configuration shall be read again.
	Asked <-chan os.Signal
	// Read reads the file of the configuration, and checks it.
	Read func() (config.Config, error)
}

// live is the configuration of a bridge as it runs. It is safe for concurrent use.
type live struct{ atomic.Pointer[config.Config] }

func newLive(c config.Config) *live {
	l := &live{}
	l.Store(&c)
	return l
}

// lowWater returns the bytes of a disk of this size that stay free.
func (l *live) lowWater(total int64) int64 { return l.Load().LowWater.Of(total) }

// dependency returns the bounds of one dependency.
func (l *live) dependency() tarstream.Limits {
	s := l.Load().Staging
	return tarstream.Limits{Bytes: s.MaxDependency.Bytes, Entries: int64(s.MaxFiles)}
}

// results returns the bytes that one bundle's results may hold; 0 means no bound but the disk.
func (l *live) results() int64 { return l.Load().Staging.MaxResults.Bytes }

// quota returns the bytes that an owner may have in the cache; 0 means no bound.
func (l *live) quota(owner string) int64 { return l.Load().Cache.Quota(owner) }

// reloader lets a running bridge follow its configuration file.
type reloader struct {
	Rereading

	own    func(config.Config) error // refuses a configuration with paths that others can write
	made   parts
	policy func(config.Config) plan.Policy
	counts Counts
	log    *slog.Logger
}

// run reads the configuration whenever that is asked for, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Asked:
		}
		err := r.reload(ctx)
		if ctx.Err() != nil {
			return
		}
		r.counts.Reloaded(err)
		refused := ""
		if err != nil {
			refused = err.Error()
			r.log.WarnContext(ctx, "the configuration was read again and refused; nothing has changed", slog.Any("error", err))
		}
		r.made.Bridge.NoteConfiguration(refused)
	}
}

// reload reads the configuration, and lets the bridge follow the changes that it can. It changes nothing if it fails.
func (r *reloader) reload(ctx context.Context) error {
	fresh, err := r.Read()
	if err == nil {
		err = r.own(fresh)
	}
	if err != nil {
		return err
	}
	running := *r.made.live.Load()
	merged, changed, left, err := running.Follow(fresh)
	if err != nil {
		return fmt.Errorf("%s: without the changes that need a new start: %w", fresh.Path, err)
	}
	if len(changed) > 0 {
		if err := r.made.Bridge.Reload(ctx, r.policy(merged)); err != nil {
			return err
		}
		r.made.follow(merged)
		r.counts.Begin(r.made.Bridge)
	}
	r.log.InfoContext(ctx, "the configuration was read again", slog.Int("changes", len(changed)))
	for _, c := range changed {
		r.log.InfoContext(ctx, "a key has changed", slog.String("key", c.Key), slog.String("change", c.String()))
	}
	for _, c := range left {
		r.log.WarnContext(ctx, "a key has changed that a running bridge does not follow: start the bridge again", slog.String("key", c.Key))
	}
	return nil
}

// follow puts a configuration in force for all but the decisions.
func (made *parts) follow(c config.Config) {
	made.live.Store(&c)
	made.content.SetSize(c.Cache.Size.Bytes)
	made.pace.SetLimit(c.Staging.Bandwidth.Bytes)
	made.Stager.Dependencies.SetAtOnce(c.Staging.Downloads)
	made.Images.SetAtOnce(c.Image.Conversions)
	made.links.SetRoots(linkRoots(c))
}

// policyOf returns the policies of configurations.
func (a Assembly) policyOf(id string, layout spool.Layout, installed sharedfiles.Programs) func(config.Config) plan.Policy {
	return func(c config.Config) plan.Policy { return policy(c, id, layout, installed, a.SubmitBound) }
}
