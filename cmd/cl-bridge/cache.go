package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/caches"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

const aboutCache = `cache manages the images and dependencies on the shared disk. It may run while bridges
run: they share the cache by the same rules.

An ENTRY is the beginning of its hash, or a part of its name: a bundle's UUID, an
image's digest.`

func cacheCommand(p program.Process) *cobra.Command {
	return parentOf("cache", "Manage the images and dependencies on the shared disk", aboutCache,
		cacheLs(p), cacheDu(p), cachePin(p), cacheTrim(p), cacheVerify(p))
}

// cacheSub returns a command about the cache of a site.
func cacheSub(p program.Process, use, short, long string, args cobra.PositionalArgs, run func(ctx context.Context, s *site, c *cache.Cache, args []string) error) *cobra.Command {
	return diskCommand(p, use, short, long, args, func(ctx context.Context, s *site, args []string) error {
		c, closing, err := openCache(ctx, p, s.Config)
		if err != nil {
			return err
		}
		return errors.Join(run(ctx, s, c, args), closing())
	})
}

// openCache opens the cache of a configuration. The cache can tell which pins are over if
// the bridge's ledger and Slurm can be asked.
func openCache(ctx context.Context, p program.Process, conf config.Config) (*cache.Cache, func() error, error) {
	var over func(context.Context, []cache.Holder) (map[cache.Holder]bool, error)
	closing := func() error { return nil }
	book, err := ledger.OpenToRead(ctx, conf.Ledger)
	switch {
	case errors.Is(err, ledger.ErrAbsent):
	case err != nil:
		return nil, nil, err
	default:
		closing = book.Close
		j := pins.Judge{Ledger: book, Now: p.Now}
		if slurm, err := findSlurm(ctx, p, conf, slog.New(slog.DiscardHandler)); err == nil {
			j.Observe = slurm.Observe
		}
		over = j.Over
	}
	c, err := cache.Open(assembly.CacheDir(conf), assembly.CacheOptions(conf, over))
	return c, closing, errors.Join(err, ctx.Err())
}

func cacheLs(p program.Process) *cobra.Command {
	return cacheSub(p, "ls", "List the entries, least recently used first, and retired contents with their holders", "", cobra.NoArgs, func(ctx context.Context, s *site, c *cache.Cache, _ []string) error {
		entries, err := caches.Entries(ctx, c)
		if err != nil {
			return err
		}
		return s.print(entries, caches.EntriesText(s.Now(), entries))
	})
}

func cacheDu(p program.Process) *cobra.Command {
	return cacheSub(p, "du", "Show the size of the cache by kind of content and by owner", "", cobra.NoArgs, func(ctx context.Context, s *site, c *cache.Cache, _ []string) error {
		u, err := caches.Measure(ctx, c, assembly.CacheDir(s.Config), s.Cache.Size.Bytes)
		if err != nil {
			return err
		}
		return s.print(u, u.Text())
	})
}

func cachePin(p program.Process) *cobra.Command {
	var job string
	var drop bool
	cmd := cacheSub(p, "pin [ENTRY...]", "Keep entries, until --drop or until a job has ended; without ENTRY list the pins", "", cobra.ArbitraryArgs,
		func(ctx context.Context, s *site, c *cache.Cache, args []string) error {
			switch {
			case len(args) > 0:
			case drop || job != "":
				return program.Usage(errors.New("want the entries to pin or to unpin"))
			default:
				return listPins(s, c)
			}
			me, err := user.Current()
			if err != nil {
				return fmt.Errorf("find this user's name: %w", err)
			}
			holder := pins.PersonHolder(me.Username)
			if job != "" {
				holder = pins.JobHolder(me.Username, job)
			}
			entries, err := c.Entries(ctx)
			if err != nil {
				return err
			}
			for _, arg := range args {
				e, err := caches.Find(entries, arg)
				if errors.Is(err, caches.ErrAmbiguous) {
					return program.Usage(err)
				}
				if err != nil {
					return err
				}
				switch {
				case drop:
					err = c.DropPin(ctx, e.Key, e.Private, holder)
				case job != "": // a job reads this very content, so its pin must not move to a later one
					_, err = c.Get(ctx, cache.Want{Key: e.Key, Private: e.Private, Holder: holder}, func(context.Context, string) error {
						return fmt.Errorf("%s has just been removed", e.Key)
					})
				default:
					err = c.Pin(ctx, e.Key, e.Private, holder)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	cmd.Flags().StringVar(&job, "job", "", "keep them until this Slurm `JOB` of yours has ended")
	cmd.Flags().BoolVar(&drop, "drop", false, "keep them no longer")
	return cmd
}

func listPins(s *site, c *cache.Cache) error {
	all, err := c.Pins()
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b cache.Pin) int { return cmp.Or(cmp.Compare(a.Holder, b.Holder), cmp.Compare(a.Hash, b.Hash)) })
	return s.print(all, caches.PinsText(s.Now(), all))
}

func cacheTrim(p program.Process) *cobra.Command {
	var o cache.TrimOptions
	cmd := cacheSub(p, "trim", "Drop pins of ended holders, and remove the excess and the leftovers of crashes", "", cobra.NoArgs,
		func(ctx context.Context, s *site, c *cache.Cache, _ []string) error {
			t, err := c.Trim(ctx, o) // t is set after an error, too
			return errors.Join(s.print(t, caches.TrimmedText(t, o.DryRun)), err)
		})
	cmd.Flags().BoolVarP(&o.DryRun, "dry-run", "n", false, "change nothing, and print the changes that would be made")
	cmd.Flags().BoolVar(&o.All, "all", false, "take all content without a pin out of use, whatever the size of the cache")
	return cmd
}

func cacheVerify(p program.Process) *cobra.Command {
	return cacheSub(p, "verify", "Read all entries and take damaged ones out of use; exit status 1 when there are any", "", cobra.NoArgs,
		func(ctx context.Context, s *site, c *cache.Cache, _ []string) error {
			list, err := caches.Verify(ctx, c)
			if list == nil {
				return err
			}
			return errors.Join(s.print(list, caches.VerifiedText(list)), err)
		})
}
