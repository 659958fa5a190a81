package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutKept = `The results of a queue with results = "keep" stay on the shared disk, below
kept/, until an operator removes them: the server has their listing only. Runs
of this bridge that depend on such a bundle see its results in place.

ls lists them, and says which of their bundles the server still has.
rm removes those of some bundles, or with --deleted those of all bundles that
the server has no more. What a bundle in the bridge's hands needs stays. A later
run that depends on a bundle whose results were removed fails, and says why.
Both may be run beside a bridge.

Exit codes: 1 some were not removed; 2 the command line or the configuration is
wrong; 3 the server, or the ledger's, does not answer.`

// keptOptions are the flags of kept's commands.
type keptOptions struct {
	place
	deleted, dryRun, json bool
}

func keptCommand(p program.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "kept", Short: "Look at, or remove, results that stay on the shared disk", Long: aboutKept,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var o keptOptions
	ls := &cobra.Command{
		Use: "ls", Short: "List kept results, and whether the server has their bundles", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.list(cmd.Context(), p) },
	}
	configFlag(ls, p, &o.config)
	ls.Flags().BoolVar(&o.json, "json", false, "print JSON")
	rm := &cobra.Command{
		Use: "rm UUID…", Short: "Remove the kept results of bundles",
		Args: program.WrongUsage(func(_ *cobra.Command, args []string) error {
			if (len(args) > 0) == o.deleted {
				return errors.New("want the UUIDs of bundles, or --deleted")
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, args []string) error { return unavailable(o.remove(cmd.Context(), p, args)) },
	}
	o.flags(rm, p)
	rm.Flags().BoolVar(&o.deleted, "deleted", false, "remove those of all bundles that the server has no more")
	rm.Flags().BoolVarP(&o.dryRun, "dry-run", "n", false, "only say what would be removed")
	rm.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.AddCommand(ls, rm)
	return cmd
}

// keptResults are kept results with what is known of their bundle.
type keptResults struct {
	spool.Kept `json:"-"`

	Bundle    string `json:"bundle"`
	Directory string `json:"directory"`
	Bytes     int64  `json:"bytes"`
	Entries   int64  `json:"entries"`
	// Superseded and Removing are those of spool.Kept.
	Superseded bool `json:"superseded"`
	Removing   bool `json:"removing"`
	// Deleted is set for a bundle that the server has no more. State and Title
	// are what the server has; empty where it was not asked, or did not say.
	Deleted bool          `json:"deleted"`
	State   codalab.State `json:"state,omitempty"`
	Title   string        `json:"name,omitempty"`
	// Outcome is what became of it: "removed", "would be removed", or why not.
	Outcome string `json:"outcome,omitempty"`
}

// find lists the kept results that the filter takes.
func (o keptOptions) find(ctx context.Context, c config.Config, want func(spool.Kept) bool) ([]keptResults, error) {
	disk := spool.Disk{Layout: spool.Layout(c.Shared)}
	all, err := disk.Kept()
	if err != nil {
		return nil, err
	}
	found := []keptResults{}
	for _, k := range all {
		if !want(k) {
			continue
		}
		r := keptResults{Kept: k, Bundle: k.Bundle, Directory: disk.Layout.KeptDir(k.Name), Superseded: k.Superseded, Removing: k.Removing}
		if r.Bytes, r.Entries, err = disk.KeptSize(ctx, k); err != nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}

// ask asks the server for the bundles. What it does not say stays empty; the
// error is the first of those that are not an answer.
func ask(ctx context.Context, c config.Config, found []keptResults) error {
	cl, err := client.New(c.Server, client.Options{ClientID: client.WorkerClient, Credentials: credentials(c)})
	if err != nil {
		return &program.Error{Code: program.ExitUsage, Err: err}
	}
	if _, err := cl.User(ctx); err != nil { // whatever answers must be a server that knows its users
		return fmt.Errorf("ask the server: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i := range found {
		r := &found[i]
		group.Go(func() error {
			b, err := cl.Bundle(ctx, r.Bundle)
			var answer *codalab.Error
			switch {
			case errors.As(err, &answer) && answer.Status == http.StatusNotFound:
				r.Deleted = true
			case err != nil:
				return fmt.Errorf("ask for bundle %s: %w", r.Bundle, err)
			default:
				r.State, r.Title = b.State, b.Metadata.String("name")
			}
			return nil
		})
	}
	return group.Wait()
}

func (o keptOptions) list(ctx context.Context, p program.Process) error {
	c, err := config.Read(o.config)
	if err != nil {
		return &program.Error{Code: program.ExitUsage, Err: err}
	}
	found, err := o.find(ctx, c, func(spool.Kept) bool { return true })
	if err != nil {
		return err
	}
	asked := ask(ctx, c, found)
	if o.json {
		return errors.Join(asked, printJSON(p.Stdout, found))
	}
	rows := [][]string{{"BUNDLE", "SERVER", "SIZE", "ENTRIES", "NAME"}}
	var sum int64
	for _, r := range found {
		rows = append(rows, []string{strings.TrimPrefix(r.Name, "."), r.server(), codalab.FormatSize(r.Bytes), number(r.Entries), line(r.Title)})
		sum += r.Bytes
	}
	_, err = fmt.Fprintf(p.Stdout, "%s%s in all, in %s\n", table(rows), codalab.FormatSize(sum), spool.Layout(c.Shared).KeptDirs())
	return errors.Join(asked, err)
}

// server says what the server has of the bundle.
func (r keptResults) server() string {
	switch {
	case r.Deleted:
		return "deleted"
	case r.State == "":
		return "?"
	}
	return string(r.State)
}

func (o keptOptions) remove(ctx context.Context, p program.Process, bundles []string) error {
	c, err := o.read(p)
	if err != nil {
		return err
	}
	for _, b := range bundles {
		if !codalab.IsUUID(b) {
			return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("%q is no UUID: want 0x and 32 hexadecimal digits", b)}
		}
	}
	found, err := o.find(ctx, c, func(k spool.Kept) bool { return o.deleted || slices.Contains(bundles, k.Bundle) })
	if err != nil {
		return err
	}
	if o.deleted {
		if err := ask(ctx, c, found); err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(r keptResults) bool { return !r.Deleted })
	}
	for _, b := range bundles {
		if !slices.ContainsFunc(found, func(r keptResults) bool { return r.Bundle == b }) {
			return fmt.Errorf("no results of bundle %s are kept in %s", b, spool.Layout(c.Shared).KeptDirs())
		}
	}
	left := 0
	for i := range found {
		removed, err := o.removeOne(ctx, c, &found[i])
		if err != nil {
			return err
		}
		if !removed {
			left++
		}
	}
	if err := o.print(p.Stdout, found); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d of %d were not removed", left, len(found))
	}
	return nil
}

// removeOne removes kept results, or says that it would, or why not.
func (o keptOptions) removeOne(ctx context.Context, c config.Config, r *keptResults) (bool, error) {
	user := ""
	inUse := func() (bool, error) {
		var err error
		user, err = userOf(ctx, c.Ledger, r.Bundle)
		return user != "", err
	}
	used, err := inUse()
	switch {
	case err != nil:
		return false, err
	case !used && o.dryRun:
		r.Outcome = "would be removed"
		return true, nil
	case !used:
		removed, err := (spool.Disk{Layout: spool.Layout(c.Shared)}).RemoveKept(r.Kept, inUse)
		if err != nil {
			return false, err
		}
		if removed {
			r.Outcome = "removed"
			return true, nil
		}
	}
	r.Outcome = "in use: " + user
	return false, nil
}

// userOf names the bundle in the bridge's hands that needs the kept results of
// a bundle, and why; empty where there is none. A row is saved before its
// bundle's dependencies are looked for.
func userOf(ctx context.Context, where, bundle string) (string, error) {
	book, err := openToJudge(ctx, where)
	if err != nil {
		return "", err
	}
	defer book.Close() //nolint:errcheck // it was only read
	rows, err := book.Rows(ctx)
	if err != nil {
		return "", err
	}
	for _, r := range rows {
		switch {
		case r.Bundle == bundle && r.Phase != plan.Done:
			return "the bundle is " + string(r.Phase), nil
		case r.Run == nil || r.Phase == plan.Collecting || r.Phase == plan.Finalizing || r.Phase == plan.Done:
			continue
		}
		for _, d := range r.Run.Dependencies {
			if d.ParentUUID == bundle {
				return "bundle " + r.Bundle + " depends on it", nil
			}
		}
	}
	return "", nil
}

func (o keptOptions) print(w io.Writer, found []keptResults) error {
	if o.json {
		return printJSON(w, found)
	}
	rows := make([][]string, 0, len(found))
	for _, r := range found {
		rows = append(rows, []string{r.Directory, codalab.FormatSize(r.Bytes), r.Outcome})
	}
	_, err := io.WriteString(w, table(rows))
	return err
}
