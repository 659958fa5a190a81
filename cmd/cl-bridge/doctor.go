package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutDoctor = `doctor tries all that a first job needs, and prints a line for each thing: ok, warning
or failed, the key of the configuration that it is about, what was found, and what to
do. It logs in to the server, asks Slurm about each queue, and then sends a short job
to each queue. The job tries its node, and the shared disk together with this host. A
job that has not begun within --wait is cancelled. doctor leaves only the program
cl-worker in the shared directory, where the bridge needs it anyway.

cl-bridge config check --live tries the same without the jobs.

Exit codes: 0 nothing failed; 1 something did; 2 the command line or the configuration
is wrong; 3 the server, Slurm or the ledger's database does not answer, and nothing
else failed.`

// doctorOptions are doctor's flags.
type doctorOptions struct {
	place
	json  bool
	jobs  bool
	wait  time.Duration
	queue []string
}

func doctorCommand(p program.Process) *cobra.Command {
	o := doctorOptions{jobs: true}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Try all that a first job needs, with a short job on each queue", Long: aboutDoctor,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), p) },
	}
	o.flags(cmd, p)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
	cmd.Flags().DurationVar(&o.wait, "wait", time.Minute, "cancel a job that has not begun after this `duration`")
	cmd.Flags().StringSliceVar(&o.queue, "queue", nil, "only this `queue`; may be repeated")
	if err := cmd.RegisterFlagCompletionFunc("queue", completeQueues(p)); err != nil {
		panic(err) // the flag was added above
	}
	return cmd
}

// findings is doctor's report in JSON.
type findings struct {
	Config  string         `json:"config"`
	Verdict doctor.Verdict `json:"verdict"`
	Checks  []doctor.Check `json:"checks"`
}

// run tries everything, and prints what it finds.
func (o doctorOptions) run(ctx context.Context, p program.Process) error {
	c, err := o.read(p)
	if err != nil {
		return err
	}
	for _, name := range o.queue {
		if c.Queue[name] == nil {
			return &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("--queue: there is no [queue.%s] in %s", name, o.config)}
		}
	}
	e := examination{Config: c, process: p, options: o, out: p.Stdout}
	if o.json {
		e.out = io.Discard
	}
	e.all(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	one, allAway := doctor.HasFailed(e.checks)
	if o.json {
		f := findings{Config: o.config, Verdict: doctor.OK, Checks: e.checks}
		if one {
			f.Verdict = doctor.Failed
		}
		if err := printJSON(p.Stdout, f); err != nil {
			return err
		}
	}
	switch {
	case allAway:
		return &program.Error{Code: program.ExitTransient}
	case one:
		return &program.Error{Code: program.ExitFailure}
	}
	return nil
}

// examination is one run of the doctor.
type examination struct {
	config.Config
	process program.Process
	options doctorOptions
	out     io.Writer
	checks  []doctor.Check
}

// note prints the checks that it has not printed before.
func (e *examination) note(checks ...doctor.Check) {
	for _, c := range checks {
		if slices.Contains(e.checks, c) {
			continue
		}
		e.checks = append(e.checks, c)
		text := fmt.Sprintf("%-8s %s: %s", c.Verdict, c.Name, termtext.Line(c.Found))
		if c.Do != "" {
			text += "; " + termtext.Line(c.Do)
		}
		_, _ = fmt.Fprintln(e.out, text) // standard output is gone
	}
}

// all tries everything, the nearest things first.
func (e *examination) all(ctx context.Context) {
	e.note(doctor.Check{Name: "configuration", Verdict: doctor.OK, Found: fmt.Sprintf("%s, queues %s", e.Path, strings.Join(slices.Sorted(maps.Keys(e.Queue)), ", "))})
	e.login(ctx)
	slurm, site := e.askSlurm(ctx)
	e.disks(ctx)
	if site == nil {
		return
	}
	healthy := e.queues(ctx, slurm, *site)
	if e.options.jobs && len(healthy) > 0 {
		e.jobs(ctx, slurm, healthy)
	}
}

// login tries the password's file, the server and the login.
func (e *examination) login(ctx context.Context) {
	_, _, unread := credentials(e.Config)(ctx)
	e.note(doctor.Password(e.PasswordFile, unread))
	if unread != nil {
		e.note(reach(ctx, e.Server, e.User)) // that needs no password
		return
	}
	version := ""
	cl, err := client.New(e.Server, client.Options{ClientID: client.WorkerClient, Credentials: credentials(e.Config)})
	if err == nil {
		version, err = cl.ServerVersion(ctx)
	}
	e.note(doctor.Server(e.Server, version, err), doctor.Login(e.User, err))
	if err == nil {
		e.groups(ctx, cl)
	}
}

// reach tries, without a login, whether anybody answers at a server's address.
func reach(ctx context.Context, server, user string) doctor.Check {
	open, err := client.New(server, client.Options{})
	if err == nil {
		_, err = open.UserByID(ctx, user)
	}
	return doctor.Reached(server, err)
}

// groups tries the groups that queues name.
func (e *examination) groups(ctx context.Context, cl *client.Client) {
	queues := e.Config.Plan()
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if q := queues[name]; q.Group != "" {
			groups, err := cl.Groups(ctx)
			e.note(doctor.Group(q, e.User, groups, err))
		}
	}
}

// askSlurm finds Slurm's commands, and asks Slurm for its partitions and the accounts
// of this user. It returns no site where Slurm does not answer.
func (e *examination) askSlurm(ctx context.Context) (*sbatch.Client, *doctor.Site) {
	slurm := slurmClient(e.process, e.Config)
	version, err := slurm.Version(ctx)
	e.note(doctor.Commands(e.Slurm.Bin, version, err))
	if err != nil {
		return nil, nil
	}
	partitions, err := slurm.Partitions(ctx)
	e.note(doctor.Controller(len(partitions), err))
	if err != nil {
		return nil, nil
	}
	site := doctor.Site{User: localUser(), Partitions: partitions}
	if *e.Slurm.Accounting {
		_, err = slurm.QueryAccounting(ctx, e.process.Now().Add(-time.Hour), []string{"cl-doctor"})
		site.Associations, _ = slurm.Associations(ctx, site.User) // without a database nobody has accounts
	}
	e.note(doctor.Accounting(*e.Slurm.Accounting, err))
	return slurm, &site
}

func localUser() string {
	me, err := user.Current()
	if err != nil {
		return fmt.Sprint(os.Getuid())
	}
	return me.Username
}

// queues judges the queues by what Slurm says of them. It returns the queues that take
// a job, and the number of GPUs that the job has to ask for.
func (e *examination) queues(ctx context.Context, slurm *sbatch.Client, site doctor.Site) (healthy map[string]int64) {
	healthy = map[string]int64{}
	queues := e.Config.Plan()
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		if len(e.options.queue) > 0 && !slices.Contains(e.options.queue, name) {
			continue
		}
		q := queues[name]
		checks, gpus := doctor.Queue(q, site), int64(0)
		if one, _ := doctor.HasFailed(checks[:1]); !one {
			var err error
			gpus, err = doctor.Try(ctx, slurm, q)
			checks = append(checks, doctor.Tried(q, site, err))
		}
		e.note(checks...)
		if one, _ := doctor.HasFailed(checks); !one {
			healthy[name] = gpus
		}
	}
	return healthy
}

// jobs sends a job to each queue.
func (e *examination) jobs(ctx context.Context, slurm *sbatch.Client, gpus map[string]int64) {
	if writable(e.Shared) != nil {
		return // said before
	}
	layout := spool.Layout(e.Shared)
	installed, err := installPrograms(e.Config, layout)
	if err != nil {
		e.note(doctor.Check{Name: "worker", Verdict: doctor.Failed, Found: err.Error(), Do: "name the program cl-worker of this build as worker"})
		return
	}
	names := slices.Sorted(maps.Keys(gpus))
	if !e.options.json {
		_, _ = fmt.Fprintf(e.process.Stderr, "sending a short job to %s, and waiting up to %s for each to begin\n", strings.Join(names, ", "), e.options.wait) // a note
	}
	jobs := doctor.Jobs{Slurm: slurm, Shared: e.Shared, Settle: e.DiskSettle.Duration, Patience: e.options.wait, Now: e.process.Now}
	queues, found := installed.queues(e.Config), make([][]doctor.Check, len(names))
	at := doctor.Place{Shared: e.Shared, Settle: e.DiskSettle.Duration, Architecture: string(config.Architecture("").Canonical())}
	var group errgroup.Group
	for i, name := range names {
		group.Go(func() error {
			q := queues[name]
			found[i] = doctor.Node(q, at, jobs.Run(ctx, q, gpus[name], installed.workers[config.Architecture("").Canonical()]))
			return nil
		})
	}
	_ = group.Wait() // nothing in it fails
	if ctx.Err() == nil {
		e.note(slices.Concat(found...)...)
	}
}
