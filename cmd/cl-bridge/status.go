package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutStatus = `status says whether a bridge runs, how many bundles it has in which phase, what
holds it up, how much room the shared disk has, and which bundle waits for the
longest time. It reads the ledger and what the bridge last noted of itself, and
changes nothing. cl-bridge explain says more of one bundle.

Exit codes: 1 no ledger; 2 the command line or the configuration is wrong; 3 the
ledger's server does not answer.`

// statusOptions are status's flags.
type statusOptions struct {
	place
	json bool
}

func statusCommand(p program.Process) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use: "status", Short: "Say whether the bridge runs, what it has, and what holds it up", Long: aboutStatus,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.read(p)
			if err != nil {
				return err
			}
			s, err := collectStatus(cmd.Context(), p, c)
			if err != nil {
				return unavailable(err)
			}
			if o.json {
				return printJSON(p.Stdout, s)
			}
			_, err = io.WriteString(p.Stdout, s.text(p.Now()))
			return err
		},
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// stock is what status says, in JSON.
type stock struct {
	Ledger string `json:"ledger"`
	Bridge string `json:"bridge"`
	// Running is set while a bridge has the ledger locked.
	Running bool `json:"running"`
	// Holds say, each in one sentence, what keeps bundles from going on.
	Holds []string `json:"holds"`
	Disk  room     `json:"disk"`
	// Queues are the configured ones, and those of which there are bundles.
	Queues []queueStock `json:"queues"`
	// Oldest is the bundle that has been waiting for the longest time; nil where
	// none waits.
	Oldest *waiting `json:"oldest,omitempty"`
	// Last is what the bridge that runs, or the last one, noted of itself.
	Last *pulse `json:"last,omitempty"`
}

// room is how much of the shared disk is free.
type room struct {
	Shared    string `json:"shared"`
	Free      int64  `json:"free_bytes"`
	Total     int64  `json:"total_bytes"`
	FreeFiles int64  `json:"free_files"`
	Files     int64  `json:"files"`
	// Low is why nothing new is put onto it; empty where it is.
	Low string `json:"low,omitempty"`
	// Trouble is why it could not be measured.
	Trouble string `json:"trouble,omitempty"`
}

// queueStock is what there is of one queue.
type queueStock struct {
	Queue  string             `json:"queue"`
	Phases map[plan.Phase]int `json:"phases"`
}

// waiting is a bundle that waits.
type waiting struct {
	Bundle string     `json:"bundle"`
	Queue  string     `json:"queue"`
	Phase  plan.Phase `json:"phase"`
	// Claimed is when the server offered it, Since when its phase began.
	Claimed time.Time `json:"claimed"`
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason"`
	Status  string    `json:"run_status"`
}

// collectStatus gathers what there is to be said.
func collectStatus(ctx context.Context, p program.Process, c config.Config) (stock, error) {
	s := stock{Ledger: sqldb.Name(c.Ledger), Holds: []string{}, Queues: []queueStock{}}
	r, err := ledger.OpenToRead(ctx, c.Ledger)
	if errors.Is(err, ledger.ErrAbsent) {
		return s, fmt.Errorf("no bridge has made a ledger at %s yet", s.Ledger)
	}
	if err != nil {
		return s, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	if s.Bridge, err = r.Bridge(ctx); err != nil {
		return s, err
	}
	rows, err := r.Rows(ctx)
	if err != nil {
		return s, err
	}
	if s.Running, err = ledger.Locked(ctx, c.Ledger); err != nil {
		return s, err
	}
	place, err := pulsePlace(p, c.Ledger, s.Bridge)
	if err == nil {
		s.Last, err = readPulse(place)
	}
	if err != nil {
		s.Holds = append(s.Holds, "What the bridge noted of itself cannot be read: "+err.Error()+".")
	}
	s.count(c, rows)
	s.measure(c, rows)
	s.holds(rows)
	return s, nil
}

// count counts the bundles of each queue, and finds the one that has waited for
// the longest time.
func (s *stock) count(c config.Config, rows []plan.Row) {
	phases := map[string]map[plan.Phase]int{}
	for name := range c.Queue {
		phases[name] = map[plan.Phase]int{}
	}
	var oldest *plan.Row
	for i, r := range rows {
		if phases[r.Queue] == nil {
			phases[r.Queue] = map[plan.Phase]int{}
		}
		phases[r.Queue][r.Phase]++
		switch r.Phase {
		case plan.Claiming, plan.Staging, plan.Submitting, plan.Queued:
			if oldest == nil || r.Claimed.Before(oldest.Claimed) {
				oldest = &rows[i]
			}
		case plan.Running, plan.Stopping, plan.Collecting, plan.Finalizing, plan.Done:
		}
	}
	for _, name := range slices.Sorted(maps.Keys(phases)) {
		s.Queues = append(s.Queues, queueStock{name, phases[name]})
	}
	if oldest != nil {
		s.Oldest = &waiting{
			Bundle: oldest.Bundle, Queue: oldest.Queue, Phase: oldest.Phase, Claimed: oldest.Claimed, Since: oldest.Since,
			Reason: oldest.Reason, Status: oldest.RunStatus(),
		}
	}
}

// measure looks how full the shared disk is, by the rule by which the bridge
// does.
func (s *stock) measure(c config.Config, rows []plan.Row) {
	s.Disk.Shared = c.Shared
	space, err := spool.Disk{Layout: spool.Layout(c.Shared)}.Space()
	if err != nil {
		s.Disk.Trouble = err.Error()
		return
	}
	s.Disk.Free, s.Disk.Total, s.Disk.FreeFiles, s.Disk.Files = space.Free, space.Total, space.FreeFiles, space.Files
	before := slices.ContainsFunc(rows, func(r plan.Row) bool { return r.Low != "" })
	if s.Running && s.Last != nil {
		before = s.Last.Low != ""
	}
	s.Disk.Low = c.LowWater.LowWater.Low(space, before)
}

// holds says what keeps bundles from going on.
func (s *stock) holds(rows []plan.Row) {
	hold := func(format string, args ...any) { s.Holds = append(s.Holds, fmt.Sprintf(format, args...)) }
	last := s.Last
	switch {
	case !s.Running && last != nil && last.Failure != "":
		hold("No bridge runs on this ledger. The last one ended at %s: %s.", clock(last.Ended), line(last.Failure))
	case !s.Running:
		hold("No bridge runs on this ledger.")
	case last == nil:
	default:
		if last.Observed.IsZero() {
			hold("Slurm has not been seen as a whole since the bridge started: until then nothing is submitted, cancelled or removed.")
		}
		switch {
		case last.Slurm == "":
		case last.SlurmNext.IsZero():
			hold("Slurm does not answer: %s.", line(last.Slurm))
		default:
			hold("Slurm has not answered since %s, and is asked again at %s: %s. Until then nothing is submitted or cancelled.",
				clock(last.SlurmSince), clock(last.SlurmNext), line(last.Slurm))
		}
		for _, queue := range slices.Sorted(maps.Keys(last.Server)) {
			hold("The server does not take the check-ins of queue %s: %s.", queue, line(last.Server[queue]))
		}
	}
	switch {
	case s.Disk.Trouble != "":
		hold("The shared disk is not there: %s.", line(s.Disk.Trouble))
	case s.Disk.Low != "":
		hold("No bundle is claimed, and no inputs are brought in: %s.", s.Disk.Low)
	}
	s.refusals(rows)
}

// refusals says what Slurm, the disk and the registries do not give to rows that
// try again.
func (s *stock) refusals(rows []plan.Row) {
	type refusal struct {
		phase   plan.Phase
		trouble string
	}
	counts := map[refusal]int{}
	for _, r := range rows {
		if (r.Phase == plan.Submitting || r.Phase == plan.Staging || r.Phase == plan.Collecting) && r.Tries > 0 && r.Trouble != "" {
			counts[refusal{r.Phase, line(r.Trouble)}]++
		}
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b refusal) int {
		return cmp.Or(-cmp.Compare(counts[a], counts[b]), cmp.Compare(a.phase, b.phase), cmp.Compare(a.trouble, b.trouble))
	})
	const most = 5
	for i, o := range order {
		if i == most {
			s.Holds = append(s.Holds, fmt.Sprintf("There are %d other reasons for which bundles are tried again.", len(order)-most))
			return
		}
		s.Holds = append(s.Holds, fmt.Sprintf("%s in %s tried again: %s.", bundlesAre(counts[o]), o.phase, o.trouble))
	}
}

func bundlesAre(n int) string {
	if n == 1 {
		return "1 bundle is"
	}
	return fmt.Sprintf("%d bundles are", n)
}
