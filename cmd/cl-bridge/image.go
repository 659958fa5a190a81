package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/admin/keptimages"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

const aboutImage = `image manages the images of bundles. The bridge brings in the images that bundles
request; pull brings in images beforehand and keeps them: they stay in the cache until
rm, and bundles can use them while their registry does not answer. With image.offline =
true in the configuration the bridge asks no registry, and bundles can use only kept
images.

It works with and without a running bridge.

Exit codes: 1 refused or failed; 2 the command line or the configuration is wrong;
3 the registry, or the ledger's server, did not answer.`

func imageCommand(p program.Process) *cobra.Command {
	return parentOf("image", "Bring images in beforehand, list and remove them", aboutImage, imagePull(p), imageLs(p), imageRm(p), imageConvert())
}

const aboutPull = `pull brings images in and keeps them until rm. Without IMAGE it brings in the images of
bundles that name none: image.default_cpu and image.default_gpu, or CodaLab's, and the
default_image of each queue, for the architecture of its nodes.

On a terminal it shows its progress; elsewhere it prints a line from time to time.`

func imagePull(p program.Process) *cobra.Command {
	var r keptimages.Request
	cmd := cacheSub(p, "pull [IMAGE...]", "Bring images in, and keep them", aboutPull, cobra.ArbitraryArgs,
		func(ctx context.Context, s *site, c *cache.Cache, args []string) error {
			r.References = args
			wanted, err := r.Wanted(s.Config)
			if err != nil {
				return program.Usage(err)
			}
			from := assembly.NewSource(s.Config, p.Getenv, assembly.DownloadPace(s.Config))
			from.OpenFile = source.FilesBelow("/") // whatever the operator may read
			im := assembly.NewImages(s.Config, c, from)
			if im.Convert, err = imageJobsAlone(ctx, p, s.Config); err != nil {
				return err
			}
			return pull(ctx, s, im, wanted)
		})
	cmd.Flags().StringVar(&r.Architecture, "arch", "", "the nodes' `architecture`, such as amd64 or arm64, if not this host's")
	cmd.Flags().StringVar(&r.Queue, "queue", "", "the architecture of this `queue`'s nodes; without IMAGE, only its default images")
	cmd.Flags().StringVar(&r.As, "as", "", "keep the one IMAGE for bundles that request it by this `reference`")
	completeArchitectures(cmd)
	if err := cmd.RegisterFlagCompletionFunc("queue", completeQueues(p)); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

func completeQueues(p program.Process) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return configOf(p, cmd).QueueNames(), cobra.ShellCompDirectiveNoFileComp
	}
}

// configOf returns the configuration of a command line for shell completion, or an empty
// one if it cannot be read.
func configOf(p program.Process, cmd *cobra.Command) config.Config {
	path, err := findConfig(p, cmd.Flag("config").Value.String())
	if err != nil {
		return config.Config{}
	}
	c, err := config.Read(path)
	if err != nil {
		return config.Config{}
	}
	return c
}

func completeArchitectures(cmd *cobra.Command) {
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return config.KnownArchitectures(), cobra.ShellCompDirectiveNoFileComp
	}
	if err := cmd.RegisterFlagCompletionFunc("arch", complete); err != nil {
		panic(err) // the flag was added before
	}
}

// pull brings images into the cache and prints each one when it is kept. It prints each
// failure at once, and returns the last one.
func pull(ctx context.Context, s *site, im *images.Images, wanted []images.Wanted) error {
	list, last := []keptimages.Pulled{}, error(nil)
	err := keptimages.Pull(ctx, im, wanted, s.Stderr, s.Now, func(one keptimages.Pulled) error {
		list = append(list, one)
		switch {
		case one.Err != nil:
			if last != nil {
				_, _ = fmt.Fprintln(s.Stderr, last)
			}
			last = one.Err
		case !s.json:
			_, err := io.WriteString(s.Stdout, one.Text())
			return err
		}
		return nil
	})
	if err == nil && s.json {
		err = s.print(list, "")
	}
	return errors.Join(err, last)
}

func imageLs(p program.Process) *cobra.Command {
	return cacheSub(p, "ls", "List the images in the cache, least recently used first", "", cobra.NoArgs,
		func(ctx context.Context, s *site, c *cache.Cache, _ []string) error {
			entries, err := c.Entries(ctx)
			if err != nil {
				return err
			}
			im := assembly.NewImages(s.Config, c, source.Source{})
			kept, err := im.Kept.List()
			if err != nil {
				return err
			}
			list := keptimages.List(entries, kept, c.Grouped(), im.References.Of)
			return s.print(list, keptimages.ListText(s.Now(), list))
		})
}

func imageRm(p program.Process) *cobra.Command {
	var arch string
	cmd := cacheSub(p, "rm IMAGE...", "Stop keeping images: the cache removes them when it needs their room", "", cobra.MinimumNArgs(1),
		func(ctx context.Context, s *site, c *cache.Cache, args []string) error {
			a := config.Architecture(arch)
			if err := a.Check(); err != nil {
				return program.Usage(fmt.Errorf("--arch: %w", err))
			}
			im := assembly.NewImages(s.Config, c, source.Source{})
			kept, err := im.Kept.List()
			if err != nil {
				return err
			}
			gone := []images.KeptImage{}
			for _, arg := range args {
				found, err := keptimages.FindKeptImages(kept, arg, a)
				if err != nil {
					return err
				}
				gone = append(gone, found...)
			}
			text := ""
			for i, k := range gone {
				if err := im.Release(ctx, k.Reference, k.Architecture); err != nil {
					return errors.Join(s.print(gone[:i], text), err)
				}
				text += images.ShortReference(k.Reference) + " " + k.Architecture + " is kept no longer\n"
			}
			return s.print(gone, text)
		})
	cmd.Flags().StringVar(&arch, "arch", "", "only that of this `architecture`")
	completeArchitectures(cmd)
	cmd.ValidArgsFunction = completeKept(p)
	return cmd
}

// completeKept completes the names of kept images.
func completeKept(p program.Process) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c := configOf(p, cmd)
		if c.Shared == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kept, err := images.Records(spool.Layout(c.Shared).KeptImages()).List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, k := range kept {
			names = append(names, k.Reference)
		}
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}
