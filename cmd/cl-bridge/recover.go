package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const aboutRecover = `A bridge whose ledger was put back from an old copy ends when it finds a job in
Slurm that is newer than the ledger: it must not touch what it does not know.
recover lists the jobs of this bridge that the ledger does not know, and says
what will become of each. It changes nothing, and may be run beside a bridge.

Look for a newer copy of the ledger first. If there is none, recover --accept
notes in the ledger that there were later submissions, and the bridge can be
started again. It is refused while a bridge works on the ledger.

Exit codes: 1 no ledger, or a bridge works on it; 2 the command line or the
configuration is wrong; 3 Slurm or the ledger's server does not answer.`

// recoverOptions are recover's flags.
type recoverOptions struct {
	place
	accept, json bool
}

func recoverCommand(p program.Process) *cobra.Command {
	var o recoverOptions
	cmd := &cobra.Command{
		Use: "recover", Short: "List the jobs that an old copy of the ledger does not know", Long: aboutRecover,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.read(p)
			if err != nil {
				return err
			}
			found, err := regain(cmd.Context(), p, c, o.accept)
			if err != nil {
				return unavailable(err)
			}
			if o.json {
				return printJSON(p.Stdout, found)
			}
			_, err = io.WriteString(p.Stdout, found.text(recoverLine(o.config, o.ledger)))
			return err
		},
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVar(&o.accept, "accept", false, "go on with this ledger: raise its generation to the highest in Slurm")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// outdated tells who reads the error of a bridge that its ledger is old what
// to do.
func outdated(err error, config, ledger string) error {
	if !errors.Is(err, plan.ErrOutdated) {
		return err
	}
	return fmt.Errorf(`%w; "%s" lists what it does not know and says how to go on`, err, recoverLine(config, ledger))
}

// recoverLine is the command line of recover for a configuration. The URL of a
// ledger is not repeated: it may hold a password.
func recoverLine(config, ledger string) string {
	said := "cl-bridge recover --config " + config
	switch {
	case sqldb.IsURL(ledger):
		return said + " --ledger URL"
	case ledger != "":
		return said + " --ledger " + ledger
	}
	return said
}

// recovery is what recover found, and did.
type recovery struct {
	Ledger string `json:"ledger"`
	Bridge string `json:"bridge"`
	// Generation is the number of the last submission that the ledger knew,
	// Highest that of the last one among the ledger's and Slurm's.
	Generation int64 `json:"generation"`
	Highest    int64 `json:"highest"`
	// Outdated is set when a bridge would not run on the ledger as it was.
	Outdated bool `json:"outdated"`
	// Accepted is set when the ledger's generation was raised to Highest.
	Accepted bool      `json:"accepted"`
	Jobs     []unknown `json:"jobs"`
}

// unknown is a job of the bridge that the ledger does not know.
type unknown struct {
	Job        sbatch.JobID `json:"job"`
	State      sbatch.State `json:"state"`
	Bundle     string       `json:"bundle"`
	Attempt    int          `json:"attempt"`
	Generation int64        `json:"generation"`
	Name       string       `json:"name"`
	// Phase is that of the bundle's row; empty where there is none.
	Phase plan.Phase `json:"phase,omitempty"`
	Fate  string     `json:"fate"`
}

// regain compares the ledger with Slurm and, where that is accepted, raises
// the ledger's generation.
func regain(ctx context.Context, p program.Process, c config.Config, accept bool) (recovery, error) {
	// Opened only to read it is not made where there is none: a new ledger
	// would be that of another bridge, which knows no job at all.
	reader, err := ledger.OpenToRead(ctx, c.Ledger)
	if errors.Is(err, ledger.ErrAbsent) {
		return recovery{}, fmt.Errorf("there is no ledger at %s", sqldb.Name(c.Ledger))
	}
	if err != nil {
		return recovery{}, err
	}
	defer reader.Close() //nolint:errcheck // it was only read
	slurm, err := findSlurm(ctx, p, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return recovery{}, &program.Error{Code: program.ExitUsage, Err: err}
	}
	if !accept {
		return compare(ctx, p.Now(), c, reader, slurm)
	}
	book, release, err := takeLedger(ctx, c.Ledger)
	if err != nil {
		return recovery{}, err
	}
	defer release()
	found, err := compare(ctx, p.Now(), c, &book.Reader, slurm)
	if err != nil || found.Highest <= found.Generation {
		return found, err
	}
	if err := book.Take(ctx); err != nil {
		return recovery{}, err
	}
	if err := book.Raise(ctx, found.Highest); err != nil {
		return recovery{}, err
	}
	found.Accepted = true
	return found, nil
}

// compare finds the jobs in Slurm that the ledger does not know.
func compare(ctx context.Context, now time.Time, c config.Config, book *ledger.Reader, slurm *sbatch.Client) (recovery, error) {
	// Slurm first: what is submitted meanwhile is in the ledger by then.
	snapshot, err := slurm.Observe(ctx, now)
	if err != nil {
		return recovery{}, &program.Error{Code: program.ExitTransient, Err: err}
	}
	id, err := book.Bridge(ctx)
	if err != nil {
		return recovery{}, err
	}
	generation, err := book.Generation(ctx)
	if err != nil {
		return recovery{}, err
	}
	rows, err := book.Rows(ctx)
	if err != nil {
		return recovery{}, err
	}
	policy := plan.Policy{Bridge: id, Owner: c.User}
	found := recovery{Ledger: sqldb.Name(c.Ledger), Bridge: id, Generation: generation, Highest: generation, Jobs: []unknown{}}
	byBundle, inFlight := map[string]plan.Row{}, map[plan.SubmissionName]bool{}
	for _, r := range rows {
		byBundle[r.Bundle] = r
		if r.InFlight() {
			inFlight[r.SubmissionName] = true
		}
	}
	for _, j := range snapshot.Jobs {
		stamp, ok := plan.StampOf(j)
		if !ok || stamp.Bridge != id {
			continue
		}
		found.Highest = max(found.Highest, stamp.Generation)
		row, known := byBundle[stamp.Bundle]
		if known && row.Attempt == stamp.Attempt && row.Generation == stamp.Generation ||
			stamp.Generation <= generation && j.State.Ended() {
			continue
		}
		found.Jobs = append(found.Jobs, unknown{
			Job: j.ID, State: j.State, Bundle: stamp.Bundle, Attempt: stamp.Attempt, Generation: stamp.Generation,
			Name: line(j.Name), Phase: row.Phase, Fate: fate(c, j.State, stamp, row),
		})
	}
	slices.SortFunc(found.Jobs, func(a, b unknown) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Job, b.Job))
	})
	known, waits := func(m plan.SubmissionName) bool { return inFlight[m] }, func(plan.Stamp) bool { return false }
	_, _, err = policy.OrphanJobs(now, snapshot, known, waits, generation, nil)
	found.Outdated = errors.Is(err, plan.ErrOutdated)
	return found, nil
}

// fate says what becomes of a job once the bridge runs on the ledger. The row
// is that of its bundle, empty where there is none.
func fate(c config.Config, state sbatch.State, job plan.Stamp, row plan.Row) string {
	cancelled := "cancelled after " + codalab.FormatDuration(orphanGrace)
	if !*c.CancelStrays {
		cancelled = "left alone, as cancel_strays is false"
	}
	again := row.Attempt < job.Attempt && row.Verdict == nil && !row.Dropped
	switch {
	case row.Bundle == "" && state.Ended():
		return "nothing: it has ended, and the ledger does not know its bundle"
	case row.Bundle == "":
		return "the ledger does not know its bundle: " + cancelled
	case row.Attempt == job.Attempt:
		return "another job of this name stands for the bundle: left alone"
	case again && state.Ended():
		return "it has ended; its bundle takes up what it left when it is submitted again"
	case again:
		return "taken up by its bundle, which waits to be submitted"
	case state.Ended():
		return "nothing: it has ended, and its bundle has gone on without it"
	}
	return "its bundle has gone on without it: " + cancelled
}

func printJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err //nolint:wrapcheck // standard output is gone
}

// text is what recover found for people; command is how it was called.
func (r recovery) text(command string) string {
	said := fmt.Sprintf("%s, of bridge %s, knows %d submissions; Slurm shows submission %d as the last.\n",
		r.Ledger, r.Bridge, r.Generation, r.Highest)
	if r.Highest == r.Generation {
		said = fmt.Sprintf("%s, of bridge %s, knows %d submissions; Slurm shows no later one.\n", r.Ledger, r.Bridge, r.Generation)
	}
	if len(r.Jobs) > 0 {
		said += "\n" + r.table() + "\n"
	}
	switch {
	case r.Accepted:
		return said + "Accepted: the ledger's next submission has a higher number than all of these. Start the bridge again.\n"
	case r.Outdated:
		return said + "Nothing was changed. The bridge does not run on this ledger. Put a newer copy in its place if there is\n" +
			"one; else go on with this one by \"" + command + " --accept\".\n"
	case r.Highest > r.Generation:
		return said + "Nothing was changed. \"" + command + " --accept\" notes the later submissions in the ledger.\n"
	}
	return said + "The bridge runs on this ledger: there is nothing to accept.\n"
}

func (r recovery) table() string {
	rows := [][]string{{"JOB", "STATE", "BUNDLE", "ATTEMPT", "SUBMISSION", "NAME", "WHAT BECOMES OF IT"}}
	for _, j := range r.Jobs {
		rows = append(rows, []string{
			j.Job.String(), string(j.State), j.Bundle, number(int64(j.Attempt)), number(j.Generation), j.Name, j.Fate,
		})
	}
	return table(rows)
}
