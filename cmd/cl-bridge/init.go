package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/draft"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const aboutInit = `init writes a configuration: it asks Slurm which partitions and accounts you may use,
asks you for what it cannot know, and logs in to the server. It writes a queue for each
partition, with its limits, and a comment for each key. Only you can read the file and
the password's file.

Without a terminal, or with --yes, init asks nothing and takes what it would suggest.
Then it needs --server and --password-file.

Exit codes: 1 refused or failed, or the file is there already; 2 the command line is
wrong; 3 the server or Slurm does not answer.`

// initOptions are init's flags.
type initOptions struct {
	config, server, user, passwordFile, shared, slurmBin string
	partitions                                           []string
	fallback                                             string
	yes, force                                           bool
}

func initCommand(p program.Process) *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use: "init", Short: "Write a configuration from what Slurm says and your answers to a few questions", Long: aboutInit,
		Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := initiation{initOptions: o, asker: newAsker(p, o.yes)}
			return i.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "the `file` to write, if not $"+configVariable+" or ~/.config/cl-bridge/bridge.toml")
	f.StringVar(&o.server, "server", "", "the CodaLab server's `address`")
	f.StringVar(&o.user, "user", "", "the `name` of the user whose bundles the bridge runs")
	f.StringVar(&o.passwordFile, "password-file", "", "a `file` with the password, mode 0600, which stays where it is")
	f.StringVar(&o.shared, "shared", "", "a `directory` that this host and the compute nodes share; it is made if need be")
	f.StringSliceVar(&o.partitions, "partitions", nil, "`names` of the partitions that get a queue, instead of all that you may use")
	f.StringVar(&o.fallback, "default", "", "the `partition` for runs that name no queue, if not Slurm's default one")
	f.StringVar(&o.slurmBin, "slurm-bin", "", "the `directory` of Slurm's commands, if it is not in PATH")
	f.BoolVar(&o.yes, "yes", false, "ask nothing: take what is suggested")
	f.BoolVar(&o.force, "force", false, "write over files that are there")
	if err := errors.Join(cmd.MarkFlagFilename("config", "toml"), cmd.MarkFlagFilename("password-file"), cmd.MarkFlagDirname("shared"), cmd.MarkFlagDirname("slurm-bin")); err != nil {
		panic(err) // the flags were added above
	}
	return cmd
}

// initiation is one run of init.
type initiation struct {
	initOptions
	asker
	draft draft.Draft
	// password was typed; it is empty where a file has it. besideConfig is the file
	// that it is written to.
	password, besideConfig string
}

func (i *initiation) run(ctx context.Context) error {
	path := i.config
	if path == "" {
		var err error
		if path, err = configPlace(i.Process); err != nil {
			return err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find configuration: %w", err)
	}
	if i.isThere(path) {
		return fmt.Errorf("%s is there already: --force writes it anew; cl-bridge doctor tries it", path)
	}
	slurm, usable, err := i.survey(ctx)
	if err != nil {
		return err
	}
	i.besideConfig = filepath.Join(filepath.Dir(path), "password")
	if err := i.login(ctx); err != nil {
		return err
	}
	if err := i.share(ctx); err != nil {
		return err
	}
	if err := i.queues(ctx, usable); err != nil {
		return err
	}
	if err := i.defaultQueue(ctx); err != nil {
		return err
	}
	i.draft.NoAccounting = doctor.TryAccounting(ctx, slurm, i.Now()) != nil
	return i.write(path)
}

// isThere says whether there is a file that init must not write over.
func (i *initiation) isThere(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist) && !i.force
}

// survey asks Slurm for the partitions that this user may use.
func (i *initiation) survey(ctx context.Context) (*sbatch.Client, []draft.Queue, error) {
	var err error
	if i.slurmBin != "" {
		if i.slurmBin, err = filepath.Abs(i.slurmBin); err != nil { // the bridge starts elsewhere
			return nil, nil, fmt.Errorf("find slurm.bin: %w", err)
		}
	}
	i.draft.SlurmBin = cmp.Or(i.slurmBin, unusual(i.Getenv("PATH"), "sbatch"))
	i.draft.SlurmConf = i.Getenv("SLURM_CONF")
	slurm := &sbatch.Client{Bin: i.draft.SlurmBin, Conf: i.draft.SlurmConf}
	version, err := slurm.Version(ctx)
	if check := doctor.Commands(i.slurmBin, version, err); err != nil {
		return nil, nil, fmt.Errorf("%s; --slurm-bin says where it is", check.Found)
	}
	usable, leftOut, err := draft.Survey(ctx, slurm, doctor.LocalUser())
	if err != nil {
		return nil, nil, &program.Error{Code: program.ExitTransient, Err: err}
	}
	if len(usable) == 0 {
		return nil, nil, fmt.Errorf("find partitions: Slurm lets you use none: %s", strings.Join(leftOut, "; "))
	}
	i.draft.LeftOut = leftOut
	i.say("%s, and %d partitions that you may use: %s\n", version, len(usable), strings.Join(draft.Partitions(usable), ", "))
	return slurm, usable, nil
}

// unusual returns the directory of a PATH that has a program; empty for one that is in
// everybody's PATH.
func unusual(path, program string) string {
	for _, dir := range filepath.SplitList(path) {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && info.Mode().IsRegular() {
			if slices.Contains([]string{"/usr/local/bin", "/usr/bin", "/bin"}, dir) {
				return ""
			}
			return dir
		}
	}
	return ""
}

// tries is how often a person may answer one question.
const tries = 5

// share finds, or makes, the shared directory.
func (i *initiation) share(ctx context.Context) error {
	for n := 1; ; n++ {
		if i.shared == "" {
			var err error
			if i.shared, err = i.ask(ctx, "A directory on a disk that the compute nodes see at the same path", i.suggestShared(), "--shared"); err != nil {
				return err
			}
		}
		err := i.makeShared()
		if err == nil || i.silent || n == tries {
			return err
		}
		i.say("%v\n", err)
		i.shared = ""
	}
}

// suggestShared returns a directory on the disk that the site names in the
// environment, or else in the home.
func (i *initiation) suggestShared() string {
	home, _ := os.UserHomeDir() // else there is no suggestion
	for _, dir := range []string{i.Getenv("SCRATCH"), i.Getenv("WORK"), home} {
		if filepath.IsAbs(dir) {
			return filepath.Join(dir, "cl-slurm")
		}
	}
	return ""
}

func (i *initiation) makeShared() error {
	dir := i.shared
	if rest, ok := strings.CutPrefix(dir, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("find your home: %w", err)
		}
		dir = filepath.Join(home, rest)
	}
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is not the absolute path of a directory", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the shared directory: %w", err)
	}
	if err := doctor.Writable(dir); err != nil {
		return fmt.Errorf("use %s as the shared directory: %w", dir, err)
	}
	i.draft.Shared = filepath.Clean(dir)
	space, err := diskspace.Of(dir)
	if err == nil && config.DefaultLowWater().Low(space, false) != "" {
		// Half of what is free, so that something can be run.
		i.draft.LowWater = fmt.Sprintf("%dm", max(space.Free/2, config.LeastLowWater)>>20)
	}
	return nil
}

// queues chooses the partitions that get a queue.
func (i *initiation) queues(ctx context.Context, usable []draft.Queue) error {
	all := draft.Partitions(usable)
	for n := 1; ; n++ {
		if len(i.partitions) == 0 {
			answer, err := i.ask(ctx, "Partitions that get a queue, of "+strings.Join(all, ", "), "all", "--partitions")
			if err != nil {
				return err
			}
			i.partitions = strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' })
		}
		if slices.Equal(i.partitions, []string{"all"}) {
			i.partitions = all
		}
		err := i.draft.Choose(usable, i.partitions)
		if err == nil || i.silent || n == tries {
			return err
		}
		i.say("%v\n", err)
		i.partitions = nil
	}
}

// defaultQueue chooses the queue for bundles that name none.
func (i *initiation) defaultQueue(ctx context.Context) error {
	for n := 1; ; n++ {
		if i.fallback == "" {
			var err error
			if i.fallback, err = i.ask(ctx, "Partition for runs that name no queue", i.draft.SuggestDefault(), "--default"); err != nil {
				return err
			}
		}
		err := i.draft.SetDefault(i.fallback)
		if err == nil || i.silent || n == tries {
			return err
		}
		i.say("%v\n", err)
		i.fallback = ""
	}
}

// write writes the files, and says what to do next.
func (i *initiation) write(path string) error {
	text := i.draft.Text()
	if _, err := config.Parse(strings.NewReader(text)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if i.password != "" {
		if err := atomicfile.Write(i.draft.PasswordFile, []byte(i.password+"\n"), 0o600); err != nil {
			return err
		}
	}
	if err := atomicfile.Write(path, []byte(text), 0o600); err != nil {
		return err
	}
	next := ""
	if usual, err := configPlace(i.Process); err != nil || usual != path {
		next = " --config " + path
	}
	i.say("Wrote %s: queues %s\n\nNext:\n  cl-bridge doctor%s    tries all of it, with a short job on each queue\n  cl-bridge run%s       runs bundles until it is stopped\n",
		path, strings.Join(i.draft.Names(), ", "), next, next)
	return nil
}
