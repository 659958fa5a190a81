package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

const aboutImage = `image looks after the images that bundles run in. Images that bundles ask for are
brought in by themselves; pull brings some in beforehand, and keeps them: they stay
in the cache until rm, and bundles run in them also while their registry cannot be
reached. With image.offline = true in the configuration no registry is asked, and the
kept images are all there are.

It may be used beside a running bridge, and where none runs.

Exit codes: 1 refused or failed; 2 the command line or the configuration is wrong;
3 the registry, or the ledger's server, did not answer.`

func imageCommand(p program.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Bring images in beforehand, and look after them", Long: aboutImage,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(imagePull(p), imageLs(p), imageRm(p), imageConvert())
	return cmd
}

const aboutPull = `pull brings images in and keeps them until rm. Without IMAGE it brings in those that
bundles run in that name none: image.default_cpu and image.default_gpu, or CodaLab's,
and the default_image of each queue, for the architecture of its nodes.

On a terminal it shows how far it is, else it prints a line now and then.`

// pullOptions are pull's flags.
type pullOptions struct {
	arch      config.Architecture
	queue, as string
}

func imagePull(p program.Process) *cobra.Command {
	var o pullOptions
	var arch string
	cmd := cacheSub(p, "pull [IMAGE...]", "Bring images in, and keep them", cobra.ArbitraryArgs,
		func(ctx context.Context, c *cache.Cache, f cacheFlags, args []string) error {
			wanted, err := o.wanted(f.conf, arch, args)
			if err != nil {
				return &program.Error{Code: program.ExitUsage, Err: err}
			}
			r := imageSource(p, f.conf, downloadPace(f.conf))
			r.OpenFile = source.FilesBelow("/") // whatever the operator may read
			im := newImages(f.conf, c, r)
			if im.Convert, err = imageJobsAlone(ctx, p, f.conf); err != nil {
				return err
			}
			return pull(ctx, p, f, im, wanted)
		})
	cmd.Long = aboutPull
	cmd.Flags().StringVar(&arch, "arch", "", "the nodes' `architecture`, such as amd64 or arm64, if not this host's")
	cmd.Flags().StringVar(&o.queue, "queue", "", "the architecture of this `queue`'s nodes; without IMAGE, its default images alone")
	cmd.Flags().StringVar(&o.as, "as", "", "keep the one IMAGE under this `name`, for bundles that ask for that")
	completeArchitectures(cmd)
	if err := cmd.RegisterFlagCompletionFunc("queue", completeQueues(p)); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

func completeQueues(p program.Process) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return slices.Sorted(maps.Keys(configOf(p, cmd).Queue)), cobra.ShellCompDirectiveNoFileComp
	}
}

// configOf returns the configuration of a command line that is being completed; an
// empty one where it cannot be read.
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

// wanted is what the command line asks for.
func (o pullOptions) wanted(c config.Config, arch string, args []string) ([]images.Wanted, error) {
	if o.arch = ""; arch != "" {
		o.arch = config.Architecture(arch).Canonical()
	}
	if err := o.arch.Check(); err != nil {
		return nil, fmt.Errorf("--arch: %w", err)
	}
	q := c.Queue[o.queue]
	switch {
	case o.queue != "" && q == nil:
		return nil, fmt.Errorf("--queue: there is no [queue.%s] in the configuration", o.queue)
	case o.queue != "" && o.arch != "" && o.arch != q.Architecture.Canonical():
		return nil, fmt.Errorf("--arch: the nodes of queue %s are %s", o.queue, q.Architecture.Canonical())
	case o.queue != "":
		o.arch = q.Architecture.Canonical()
	}
	if o.as != "" && len(args) != 1 {
		return nil, errors.New("--as wants one IMAGE")
	}
	if len(args) == 0 {
		return o.defaults(c)
	}
	var wanted []images.Wanted
	for _, arg := range args {
		w, err := want(arg, o.as, o.arch)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

func want(image, as string, arch config.Architecture) (w images.Wanted, err error) {
	w = images.Wanted{Architecture: string(arch.Canonical()), By: whoami()}
	if w.Reference, err = source.ParseReference(image); err != nil {
		return w, err
	}
	if as != "" {
		if w.Name, err = source.ParseReference(as); err != nil {
			return w, fmt.Errorf("--as: %w", err)
		}
	}
	return w, nil
}

// defaults are the images of bundles that name none.
func (o pullOptions) defaults(c config.Config) ([]images.Wanted, error) {
	var wanted []images.Wanted
	known := map[string]bool{}
	for name, q := range c.Queue {
		arch := q.Architecture.Canonical()
		if o.queue != "" && name != o.queue || o.arch != "" && o.arch != arch {
			continue
		}
		for _, image := range c.DefaultImages(q) {
			if id := image + " " + string(arch); !known[id] {
				known[id] = true
				w, err := want(image, "", arch)
				if err != nil {
					return nil, err
				}
				wanted = append(wanted, w)
			}
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("--arch: no queue's nodes are %s: name the IMAGE", o.arch)
	}
	slices.SortFunc(wanted, func(a, b images.Wanted) int {
		return cmp.Or(cmp.Compare(a.Reference.String(), b.Reference.String()), cmp.Compare(a.Architecture, b.Architecture))
	})
	return wanted, nil
}

// whoami is who this is, for people.
func whoami() string {
	name := fmt.Sprint(os.Getuid())
	if me, err := user.Current(); err == nil {
		name = me.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

// pulled is what pull tells of an image: what is kept, or why not.
type pulled struct {
	Image string `json:"image"`
	*images.Kept
	Failure string `json:"failure,omitempty"`
}

// pull brings images in, one after the other. One that cannot be had keeps no
// other from being brought in.
func pull(ctx context.Context, p program.Process, f cacheFlags, im *images.Images, wanted []images.Wanted) error {
	list, failed := []pulled{}, []error{}
	for _, w := range wanted {
		bar := newBar(p, w.Reference.String()+" "+w.Architecture)
		k, err := im.Keep(ctx, w, bar.show)
		bar.clear()
		one := pulled{Image: w.Reference.String(), Kept: &k}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			one.Kept, one.Failure = nil, err.Error()
			failed = append(failed, pullError(err))
		}
		list = append(list, one)
		if !f.json && err == nil {
			if _, err := fmt.Fprint(p.Stdout, one.text()); err != nil {
				return err //nolint:wrapcheck // standard output is gone
			}
		}
	}
	var err error
	if f.json {
		err = printJSON(p.Stdout, list)
	}
	if len(failed) > 1 {
		// Each is a line; the last one says how the program ends.
		for _, one := range failed[:len(failed)-1] {
			_, _ = fmt.Fprintln(p.Stderr, one)
		}
	}
	if len(failed) > 0 {
		err = errors.Join(err, failed[len(failed)-1])
	}
	return err
}

// pullError makes a registry that does not answer end the program as a server
// that does not answer does.
func pullError(err error) error {
	var e *transfer.Error
	if errors.As(err, &e) && e.Transient() {
		return &program.Error{Code: program.ExitTransient, Err: err}
	}
	return err
}

func imageRm(p program.Process) *cobra.Command {
	var arch string
	cmd := cacheSub(p, "rm IMAGE...", "Keep images no longer: the cache removes them when it needs their room", cobra.MinimumNArgs(1),
		func(ctx context.Context, c *cache.Cache, f cacheFlags, args []string) error {
			a := config.Architecture(arch)
			if err := a.Check(); err != nil {
				return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("--arch: %w", err)}
			}
			im := newImages(f.conf, c, source.Source{})
			kept, err := im.Kept.List()
			if err != nil {
				return err
			}
			gone := []images.Kept{}
			for _, arg := range args {
				found, err := findKept(kept, arg, a)
				if err != nil {
					return err
				}
				gone = append(gone, found...)
			}
			text := ""
			for _, k := range gone {
				if err := im.Release(ctx, k.Name, k.Architecture); err != nil {
					return err
				}
				text += images.ShortName(k.Name) + " " + k.Architecture + " is kept no longer\n"
			}
			return show(p, f, gone, text)
		})
	cmd.Flags().StringVar(&arch, "arch", "", "only that of this `architecture`")
	completeArchitectures(cmd)
	cmd.ValidArgsFunction = completeKept(p)
	return cmd
}

// findKept returns the kept images that a word means: a name as people write it,
// or the beginning of a digest.
func findKept(kept []images.Kept, word string, a config.Architecture) ([]images.Kept, error) {
	full := word
	if ref, err := source.ParseReference(word); err == nil {
		full = ref.Name()
	}
	var found []images.Kept
	for _, k := range kept {
		if a != "" && k.Architecture != string(a.Canonical()) {
			continue
		}
		if k.Name == full || k.From == word || strings.HasPrefix(k.Digest, word) && len(word) > len("sha256:") {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no image %q is kept: cl-bridge image ls lists them", word)
	}
	return found, nil
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
			names = append(names, k.Name)
		}
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}
