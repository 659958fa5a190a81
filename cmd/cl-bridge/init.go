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
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/doctor"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

const aboutInit = `init writes a configuration: it asks Slurm which partitions and accounts you may use,
asks you for what it cannot know, and logs in to the server. There is a queue for each
partition, with its limits, and a comment for each key. The file and the password's
are for your eyes alone.

Where there is no terminal, or with --yes, nobody is asked: what no flag says is as
suggested, and --server and --password-file are needed.

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
		Use: "init", Short: "Write a configuration, of what Slurm says and of a few questions", Long: aboutInit,
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
	f.BoolVar(&o.yes, "yes", false, "ask nobody: take what is suggested")
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
	draft draft
	// password is the one that was typed, empty for a file that is there;
	// besideConfig is where it is to be written.
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
	if err := i.mayWrite(path); err != nil {
		return err
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
	if _, err := slurm.Account(ctx, i.Now().Add(-time.Hour), []string{"cl-doctor"}); err != nil {
		i.draft.NoAccounting = true
	}
	return i.write(path)
}

// mayWrite refuses to write over a file that is there.
func (i *initiation) mayWrite(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) && !i.force {
		return fmt.Errorf("%s is there already: --force writes it anew; cl-bridge doctor tries it", path)
	}
	return nil
}

// survey asks Slurm for the partitions that this user may use.
func (i *initiation) survey(ctx context.Context) (*sbatch.Client, []draftQueue, error) {
	i.draft.SlurmBin, i.draft.SlurmConf = i.slurmBin, i.Getenv("SLURM_CONF")
	if i.draft.SlurmBin == "" {
		i.draft.SlurmBin = unusual(i.Getenv("PATH"), "sbatch")
	}
	slurm := &sbatch.Client{Bin: i.draft.SlurmBin, Conf: i.draft.SlurmConf}
	version, err := slurm.Version(ctx)
	if check := doctor.Commands(i.slurmBin, version, err); err != nil {
		return nil, nil, fmt.Errorf("%s; --slurm-bin says where it is", check.Found)
	}
	partitions, err := slurm.Partitions(ctx)
	if err != nil {
		return nil, nil, &program.Error{Code: program.ExitTransient, Err: err}
	}
	associations, _ := slurm.Associations(ctx, localUser()) // without a database nobody has accounts
	var usable []draftQueue
	for _, p := range partitions {
		q, err := i.candidate(ctx, slurm, p, associations)
		if err != nil {
			i.draft.LeftOut = append(i.draft.LeftOut, fmt.Sprintf("partition %s: %v", p.Name, err))
			continue
		}
		usable = append(usable, q)
	}
	if len(usable) == 0 {
		return nil, nil, fmt.Errorf("find partitions: Slurm lets you use none: %s", strings.Join(i.draft.LeftOut, "; "))
	}
	i.say("%s, and %d partitions that you may use: %s\n", version, len(usable), names(usable))
	return slurm, usable, nil
}

// candidate is a queue for a partition, with an account that Slurm takes there; or
// why there is none.
func (i *initiation) candidate(ctx context.Context, slurm *sbatch.Client, p sbatch.Partition, associations []sbatch.Association) (draftQueue, error) {
	switch {
	case !p.Up():
		return draftQueue{}, errors.New("it is " + p.State)
	case p.Nodes == 0:
		return draftQueue{}, errors.New("it has no nodes")
	}
	var accounts []string
	for _, a := range associations {
		switch {
		case a.Partition != "" && a.Partition != p.Name || slices.Contains(accounts, a.Account):
		case a.Default:
			accounts = slices.Insert(accounts, 0, a.Account)
		default:
			accounts = append(accounts, a.Account)
		}
	}
	if len(accounts) == 0 {
		accounts = []string{""} // as Slurm chooses
	}
	var refused error
	for n, account := range accounts {
		_, err := doctor.Try(ctx, slurm, plan.Queue{Partition: p.Name, Account: account})
		if err == nil {
			return draftQueue{Partition: p, Account: account, Others: slices.Delete(accounts, n, n+1)}, nil
		}
		refused = cmp.Or(refused, err)
	}
	var said *sbatch.Error
	if errors.As(refused, &said) {
		refused = errors.New(said.Message)
	}
	return draftQueue{}, refused
}

// unusual is the directory in a PATH that has a program, unless it is one that is
// in everybody's.
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

func names(queues []draftQueue) string {
	var all []string
	for _, q := range queues {
		all = append(all, q.Partition.Name)
	}
	return strings.Join(all, ", ")
}

// tries is how often a person may mistype.
const tries = 5

// login asks for server, user and password until the server lets the user in.
func (i *initiation) login(ctx context.Context) error {
	for n := 1; ; n++ {
		if err := i.askLogin(ctx); err != nil {
			return err
		}
		version, err := i.tryLogin(ctx)
		if err == nil {
			i.say("%s is a CodaLab server, version %s, and lets %s in\n", i.draft.Server, version, i.draft.User)
			return nil
		}
		said := doctor.Login(i.draft.User, err)
		reached := doctor.Server(i.draft.Server, version, err)
		if reached.Verdict == doctor.Failed {
			said = reached
		}
		var unread *program.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &unread):
			return err
		case (i.silent || n == tries) && said.Away:
			return &program.Error{Code: program.ExitTransient, Err: errors.New(said.Found)}
		case i.silent || n == tries:
			return errors.New(said.Found)
		}
		i.say("%s\n", said.Found)
		if reached.Verdict == doctor.Failed {
			i.server = ""
		} else {
			i.user, i.passwordFile = "", ""
		}
	}
}

func (i *initiation) askLogin(ctx context.Context) error {
	var err error
	if i.server == "" {
		if err = i.askServer(ctx); err != nil {
			return err
		}
		i.password = ""
	}
	if i.user == "" {
		if i.user, err = i.ask(ctx, "Your user name there", cmp.Or(i.draft.User, localUser()), "--user"); err != nil {
			return err
		}
		i.password = ""
	}
	if i.passwordFile == "" && i.password == "" {
		if i.password, err = i.askPassword(ctx, "Password of "+i.user+" (it is not shown)"); err != nil {
			return err
		}
	}
	i.draft.Server, i.draft.User = strings.TrimRight(i.server, "/"), i.user
	return nil
}

// askServer asks for the server until somebody answers at its address, so that
// nobody types a password for a mistyped one.
func (i *initiation) askServer(ctx context.Context) error {
	for n := 1; ; n++ {
		server, err := i.ask(ctx, "Address of the CodaLab server, such as https://worksheets.example.org", i.draft.Server, "--server")
		if err != nil {
			return err
		}
		i.draft.Server = strings.TrimRight(server, "/")
		check := reach(ctx, i.draft.Server, "codalab")
		if check.Verdict != doctor.Failed || n == tries {
			i.server = i.draft.Server
			return ctx.Err()
		}
		i.say("%s\n", check.Found)
	}
}

// tryLogin logs in with the password that was typed, or that is in the file.
func (i *initiation) tryLogin(ctx context.Context) (version string, err error) {
	i.draft.PasswordFile = i.besideConfig
	ask := func(context.Context) (string, string, error) { return i.draft.User, i.password, nil }
	if i.passwordFile != "" {
		path, err := filepath.Abs(i.passwordFile)
		if err != nil {
			return "", fmt.Errorf("find password_file: %w", err)
		}
		i.draft.PasswordFile = path
		ask = credentials(config{User: i.draft.User, PasswordFile: path})
		if _, _, err := ask(ctx); err != nil {
			return "", &program.Error{Code: program.ExitUsage, Err: err}
		}
	}
	cl, err := client.New(i.draft.Server, client.Options{ClientID: client.WorkerClient, Credentials: ask})
	if err != nil {
		return "", err
	}
	return cl.ServerVersion(ctx)
}

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

// suggestShared is where sites that name such a disk have it, or in the home.
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
	if err := writable(dir); err != nil {
		return fmt.Errorf("use %s as the shared directory: %w", dir, err)
	}
	i.draft.Shared = filepath.Clean(dir)
	space, err := diskspace.Of(dir)
	if err == nil && (config{}).lowWater().Low(space, false) != "" {
		// Half of what is free, so that something can be run.
		i.draft.LowWater = fmt.Sprintf("%dm", max(space.Free/2, leastLowWater)>>20)
	}
	return nil
}

// queues chooses the partitions that get a queue, and the one for what names none.
func (i *initiation) queues(ctx context.Context, usable []draftQueue) error {
	all := names(usable)
	wanted := i.partitions
	if len(wanted) == 0 {
		answer, err := i.ask(ctx, "Partitions that get a queue, of "+all, "all", "--partitions")
		if err != nil {
			return err
		}
		wanted = strings.FieldsFunc(answer, func(r rune) bool { return r == ',' || r == ' ' })
	}
	if slices.Equal(wanted, []string{"all"}) {
		wanted = strings.Split(all, ", ")
	}
	fallback := ""
	for _, name := range wanted {
		at := slices.IndexFunc(usable, func(q draftQueue) bool { return q.Partition.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no partition %q that you may use: there are %s", name, all)
		}
		q := usable[at]
		q.Name = queueName(name, i.draft.Queues)
		i.draft.Queues = append(i.draft.Queues, q)
		if fallback == "" || q.Partition.Default {
			fallback = name
		}
	}
	if i.fallback == "" {
		answer, err := i.ask(ctx, "Partition for runs that name no queue", fallback, "--default")
		if err != nil {
			return err
		}
		i.fallback = answer
	}
	at := slices.IndexFunc(i.draft.Queues, func(q draftQueue) bool { return q.Partition.Name == i.fallback })
	if at < 0 {
		return fmt.Errorf("there is no queue for a partition %q: there are %s", i.fallback, names(i.draft.Queues))
	}
	i.draft.Queues[at].Default = true
	return nil
}

// write writes the files, and says what to do next.
func (i *initiation) write(path string) error {
	text := i.draft.text()
	if _, err := parseConfig(strings.NewReader(text)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if i.password != "" {
		if err := i.mayWrite(i.draft.PasswordFile); err != nil {
			return err
		}
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
		path, queueNames(i.draft.Queues), next, next)
	return nil
}

func queueNames(queues []draftQueue) string {
	var all []string
	for _, q := range queues {
		all = append(all, q.Name)
	}
	return strings.Join(all, ", ")
}
