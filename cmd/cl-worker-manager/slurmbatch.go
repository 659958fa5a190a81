package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/backoff"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/metrics"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
	"github.com/cl-slurm/cl-slurm/sbatch"
	"github.com/cl-slurm/cl-slurm/sbatch/callmetrics"
)

// slurmBatch is one call of slurm-batch (slurm_batch_worker_manager.py: add_arguments_to_subparser).
type slurmBatch struct {
	*manager
	location
	job        slurmbatch.Job
	limit      string
	user       string
	dryRun     bool
	mostFailed int
	// gpusGiven is set if --gpus was given.
	gpusGiven bool
}

// location identifies a manager: the name of its jobs, its work directory and the files of its login.
type location struct {
	jobName, workDir string
	login            loginFiles
}

func (at *location) addFindFlags(flags *pflag.FlagSet) {
	flags.StringVar(&at.jobName, "job-name", "codalab-slurm-worker", "`name` in the names of the jobs; each manager of a user needs one of its own")
	flags.StringVar(&at.workDir, "slurm-work-dir", "slurm-worker-scratch", "`directory` for logs and files of workers, which the nodes see too")
	at.login.addFlags(flags)
}

func (m *manager) slurmBatchCommand() *cobra.Command {
	s := &slurmBatch{manager: m}
	cmd := &cobra.Command{
		Use: "slurm-batch", Short: "Run workers in Slurm jobs",
		Long: `slurm-batch runs each worker in a Slurm job. It starts as many at once as the staged
bundles need, and none while Slurm or the server does not answer.

End it with an interrupt: its workers continue. cl-worker-manager kill ends one.`,
		Args: program.WrongUsage(cobra.NoArgs),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	s.addFindFlags(flags)
	flags.StringVar(&s.job.NodeList, "nodelist", "", "`nodes` that the job has to have")
	flags.StringVar(&s.job.Exclude, "exclude", "", "`nodes` on which no job runs")
	flags.StringVar(&s.job.Partition, "partition", "", "`partition` (default: the site's)")
	flags.Int64Var(&s.job.CPUs, "cpus", 1, "`number` of CPUs of a worker")
	flags.Int64Var(&s.job.GPUs, "gpus", 1, "`number` of GPUs of a worker; 0 by default where the partition has none")
	flags.StringVar(&s.job.GPUType, "gpu-type", "", "`type` of the GPUs")
	flags.StringVar(&s.job.Constraint, "constraint", "", "`features` that the node has to have")
	flags.Int64Var(&s.job.MemoryMB, "memory-mb", 2048, "memory of a worker in `MiB`")
	flags.StringVar(&s.limit, "time", "10-0", "`limit` of the job, as sbatch takes it; at most the partition's")
	flags.BoolVar(&s.dryRun, "dry-run", false, "print the job of a worker, submit nothing, and end")
	flags.StringVar(&s.user, "user", "", "accepted if it is you: Slurm runs jobs as the `user` who submits them")
	flags.IntVar(&s.mostFailed, "exit-after-num-failed", -1, "end when more than this `number` of workers have failed to start (default: never)")
	flags.Lookup("exit-after-num-failed").DefValue = "0" // -1 means nothing to people
	flags.StringVar(&s.job.Account, "account", "", "`account` of the jobs (default: the site's)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.gpusGiven = cmd.Flags().Changed("gpus")
		return s.manageWorkers(cmd.Context())
	}
	return cmd
}

func (s *slurmBatch) manageWorkers(ctx context.Context) error {
	if err := s.check(); err != nil {
		return err
	}
	server, err := s.address()
	if err != nil {
		return err
	}
	calls := callmetrics.New(metrics.Prefix, s.Now)
	slurm := s.slurm(calls.Begin)
	if err := s.fit(ctx, slurm); err != nil {
		return err
	}
	backend, err := s.backend(ctx, slurm, server)
	if err != nil {
		return err
	}
	if s.dryRun {
		return s.printJob(backend)
	}
	if err := os.MkdirAll(backend.WorkDir, 0o700); err != nil {
		return fmt.Errorf("make --slurm-work-dir: %w", err)
	}
	if err := strictmodes.Current().Check(backend.WorkDir); err != nil { // it has the workers' tokens
		return program.Usage(fmt.Errorf("--slurm-work-dir: %w", err))
	}
	login, err := s.login.find(ctx, s.Process, server, backend.WorkDir)
	if err != nil {
		return err
	}
	api, err := login.connect(server, s.device(server))
	if err == nil {
		err = login.findUser(ctx, api, s.once, s.Process, s.logger())
	}
	if err != nil {
		return err
	}
	backend.Login, backend.Logger = login.forWorker, s.logger()
	backend.Worker.TakesToken = s.takesToken(ctx, backend.Worker.Executable)
	found := s.record(server, login)
	loop := found.manager(api, backend, s.Now)
	if err := found.save(backend); err != nil {
		return err
	}
	s.bound(loop)
	loop.MostFailed = s.mostFailed
	if s.once {
		return loop.Once(ctx)
	}
	return s.run(ctx, running{
		api: api, loop: loop, backend: "slurm-batch", name: backend.User + "-" + backend.JobName, command: "cl-worker-manager", calls: calls,
	})
}

func (s *slurmBatch) check() (err error) {
	if err := s.manager.check(); err != nil {
		return err
	}
	if s.job.Time, err = sbatch.ParseLimit(s.limit); err != nil {
		return program.Usage(fmt.Errorf("--time %q: %w", s.limit, err))
	}
	me, err := user.Current()
	switch {
	case err != nil:
		return fmt.Errorf("find the user's name: %w", err)
	case s.user != "" && s.user != me.Username:
		return program.Usage(fmt.Errorf("--user %s: sbatch runs jobs as you, %s; run the manager as %[1]s", s.user, me.Username))
	case s.job.CPUs < 1 || s.job.GPUs < 0 || s.job.MemoryMB < 1:
		return program.Usage(errors.New("--cpus and --memory-mb must be above 0, and --gpus not below"))
	case s.jobName == "" || strings.ContainsAny(s.jobName, "/,\n"):
		return program.Usage(fmt.Errorf("--job-name %q cannot be part of the names of jobs and files", s.jobName))
	}
	s.user = me.Username
	return nil
}

// slurm returns Slurm, with one squeue a second at most. watch is that of the client; it may be nil.
func (m *manager) slurm(watch func(command string) (ended func(answered bool))) *sbatch.Observer {
	return &sbatch.Observer{Scheduler: &sbatch.Client{Conf: m.Getenv("SLURM_CONF"), Watch: watch}, Interval: time.Second, Now: m.Now}
}

// fit adapts the job to its partition. If the controller does not answer, fit waits, unless the manager makes only
// one pass or none.
func (s *slurmBatch) fit(ctx context.Context, slurm *sbatch.Observer) error {
	log := s.logger()
	for failures := 1; ; failures++ {
		partitions, err := slurm.Partitions(ctx)
		var failed *sbatch.Error
		switch {
		case err == nil:
			for _, change := range s.job.Fit(partitions, !s.gpusGiven) {
				log.InfoContext(ctx, "adapted to the partition", slog.String("change", change))
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case s.dryRun:
			log.WarnContext(ctx, "the partition's limits are not known", slog.Any("error", err))
			return nil
		case s.once || !errors.As(err, &failed):
			return err
		case failures == 1:
			log.WarnContext(ctx, "waiting for Slurm", slog.Any("error", err))
		}
		if err := backoff.Wait(ctx, failures, time.Second, time.Minute); err != nil {
			return err
		}
	}
}

// backend returns the backend without a login.
func (s *slurmBatch) backend(ctx context.Context, slurm slurmbatch.Slurm, server string) (*slurmbatch.Backend, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	worker := slurmbatch.Worker{Worker: pilot.Worker{Server: server, IdleSeconds: s.worker.idleSeconds, Arguments: s.worker.arguments()}}
	if worker.Executable, worker.Scripted, err = s.executable(); err != nil {
		return nil, err
	}
	if worker.Checked, err = checkProgram(worker.Executable); err != nil {
		return nil, err
	}
	// slurm_batch_worker_manager.py: setup_codalab_worker
	worker.WorkDir = filepath.Join(s.worker.workDirPrefix, s.user+"-codalab-SlurmBatchWorkerManager-scratch", "workdir")
	if !filepath.IsAbs(worker.WorkDir) {
		worker.WorkDir = filepath.Join(here, worker.WorkDir)
	}
	s.job.Dir = here
	b, err := s.openBackend(s.Process, slurm)
	if err != nil {
		return nil, err
	}
	b.Job, b.Worker, b.Env = s.job, worker, s.proxies(ctx)
	return b, nil
}

// proxies returns this process's proxy variables, because nodes usually need them, too. It leaves out an address
// with a user or a password, because Slurm's database may keep a job's environment.
func (s *slurmBatch) proxies(ctx context.Context) []string {
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		switch value := s.Getenv(name); {
		case strings.Contains(value, "@"):
			s.logger().WarnContext(ctx, "a proxy with a password is not passed to workers", slog.String("variable", name))
		case value != "":
			env = append(env, name+"="+value)
		}
	}
	return env
}

// openBackend returns the backend of a manager for commands that show or kill its pilots.
func (at *location) openBackend(p program.Process, slurm slurmbatch.Slurm) (*slurmbatch.Backend, error) {
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("find the user's name: %w", err)
	}
	dir, err := filepath.Abs(at.workDir)
	return &slurmbatch.Backend{Slurm: slurm, User: me.Username, JobName: at.jobName, WorkDir: dir, Now: p.Now}, err
}

// printJob prints the job that the manager would submit for a worker.
func (s *slurmBatch) printJob(b *slurmbatch.Backend) error {
	login := "PASSWORD-FILE"
	if s.login.password != "" {
		path, err := filepath.Abs(s.login.password)
		if err != nil {
			return err
		}
		login = path
	}
	r := b.Request(b.NewName(), []string{"--password-file", login})
	words := []string{"sbatch"}
	for _, word := range r.Args() {
		if strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:@,+") != "" {
			word = sbatch.Quote(word)
		}
		words = append(words, word)
	}
	return s.Print(false, nil, strings.Join(words, " ")+"\n\n"+r.Script)
}
