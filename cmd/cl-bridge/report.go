package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/costs"
	"github.com/cl-slurm/cl-slurm/bridge/admin/status"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const aboutReport = `report shows what the bundles of the bridge have cost: a line for each job that ended in
the time, or with --by a line for each user, queue or group. The group is that of the
queue, else those of the owner: an owner of several groups counts once, under all of
them. The ledger keeps the numbers for keep_history, by default 14 days.

Start, end, CPUs, GPUs and energy are those of one question to Slurm's accounting database
(sacct). Jobs that it does not know have the times of the bridge, which differ from
Slurm's by a second or two; source says which a line has. Processor time, memory and
the use of GPUs were measured by the workers.

--since and --until are times before now, such as 12h or 30d, or dates such as 2042-03-14.

Exit codes: 1 no ledger; 2 the command line or the configuration is wrong; 3 the
ledger's server does not answer.`

// reportOptions are the flags of report.
type reportOptions struct {
	since, until, by string
	csv              bool
}

func reportCommand(p program.Process) *cobra.Command {
	var o reportOptions
	cmd := siteCommand(p, "report", "Show what bundles have cost", aboutReport, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error { return s.report(ctx, o) })
	cmd.Flags().StringVar(&o.since, "since", "14d", "report the jobs that ended at this `time` or later")
	cmd.Flags().StringVar(&o.until, "until", "", "report the jobs that ended before this `time`, if not until now")
	cmd.Flags().StringVar(&o.by, "by", "", "print sums by `property`: user, queue or group")
	cmd.Flags().BoolVar(&o.csv, "csv", false, "print CSV")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"user", "queue", "group"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return cmd
}

func (s *site) report(ctx context.Context, o reportOptions) error {
	since, until, by, err := o.read(s.Now())
	if err == nil && o.csv && s.json {
		err = errors.New("give --json or --csv, not both")
	}
	if err != nil {
		return program.Usage(err)
	}
	r, err := ledger.OpenToRead(ctx, s.Ledger)
	if err != nil {
		return s.absent(ctx, err, fmt.Sprintf("no bridge has made a ledger at %s yet", sqldb.Name(s.Ledger)))
	}
	defer r.Close()
	var charges []ledger.Charge
	err = r.EachCharge(ctx, since, until, func(c ledger.Charge) error {
		charges = append(charges, c)
		return nil
	})
	if err != nil {
		return err
	}
	known, note := s.accounted(ctx, charges)
	names := costs.Names{Users: s.userNames(ctx, charges), Groups: map[string]string{}}
	for name, q := range s.Queue {
		names.Groups[name] = q.Group
	}
	b := costs.NewBuilder(by, known, names)
	for _, c := range charges {
		b.Add(c)
	}
	found := b.Report()
	found.Note = note
	if note == "" && found.Total.Unaccounted > 0 {
		found.Note = fmt.Sprintf("Slurm's accounting does not know %d of the jobs, whose times are the bridge's.", found.Total.Unaccounted)
	}
	if o.csv {
		return costs.WriteCSV(s.Stdout, found)
	}
	return s.print(found, costs.Text(found))
}

// read reads the flags.
func (o reportOptions) read(now time.Time) (since, until time.Time, by costs.By, err error) {
	if since, err = readTime(o.since, now); err != nil {
		return since, until, by, fmt.Errorf("--since: %w", err)
	}
	until = now
	if o.until != "" {
		if until, err = readTime(o.until, now); err != nil {
			return since, until, by, fmt.Errorf("--until: %w", err)
		}
	}
	switch by = costs.By(o.by); by {
	case "", costs.ByUser, costs.ByQueue, costs.ByGroup:
	default:
		return since, until, by, fmt.Errorf("--by: want user, queue or group, not %q", o.by)
	}
	if !since.Before(until) {
		return since, until, by, errors.New("--since is not before --until")
	}
	return since, until, by, nil
}

// readTime reads a time before now, such as 30d, or a date of this host's time zone.
func readTime(s string, now time.Time) (time.Time, error) {
	for _, form := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(form, s, now.Location()); err == nil {
			return t, nil
		}
	}
	d, err := codalab.ParseDuration(s)
	if err != nil || d <= 0 {
		return time.Time{}, fmt.Errorf("%q is no time: want one such as 12h, 30d or 2042-03-14", s)
	}
	return now.Add(-d), nil
}

// accounted returns the allocations that Slurm's accounting database knows, or says why it tells none.
func (s *site) accounted(ctx context.Context, charges []ledger.Charge) (known []sbatch.Charge, note string) {
	if len(charges) == 0 {
		return nil, ""
	}
	first, last := charges[0].Started, charges[0].Ended
	for _, c := range charges {
		if c.Started.Before(first) {
			first = c.Started
		}
		if c.Ended.After(last) {
			last = c.Ended
		}
	}
	const lost = " All times are the bridge's, and energy is not known."
	err := sbatch.ErrNoAccounting
	if s.Slurm.HasAccounting(true) { // unless sacct says that there is none
		known, err = slurmClient(s.Process, s.Config).QueryCharges(ctx, first.Add(-time.Hour), last.Add(time.Hour), status.MeasuresEnergy(ctx, s.Config))
	}
	switch {
	case errors.Is(err, sbatch.ErrNoAccounting):
		return nil, "This site has no accounting database." + lost
	case err != nil:
		return nil, "Slurm's accounting database does not answer: " + codalab.Sentence(err.Error()) + lost
	}
	return known, ""
}

// userNames asks the server for the names of the owners whom the ledger knows by their ids alone. A report without names
// is better than none, so that it returns what it gets within some seconds.
func (s *site) userNames(ctx context.Context, charges []ledger.Charge) map[string]string {
	names := map[string]string{}
	for _, c := range charges {
		if c.OwnerName == "" {
			names[c.Owner] = ""
		}
	}
	if len(names) == 0 {
		return names
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cl, err := newClient(s.Config, nil, nil)
	for id := range names {
		if err != nil {
			return names
		}
		var u codalab.User
		if u, err = cl.UserByID(ctx, id); err == nil {
			names[id] = u.UserName
		} else if codalab.IsStatus(err, 404) {
			err = nil
		}
	}
	return names
}
