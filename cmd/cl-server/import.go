package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/codalabimport"
)

// passwordVariable is the variable from which MySQL's own programs read the password.
const passwordVariable = "MYSQL_PWD" //nolint:gosec // no password

// importFlags are the flags of import.
type importFlags struct {
	at           dataLocation
	mysql        string
	passwordFile string
	dryRun       bool
	asJSON       bool
	job          codalabimport.Import
}

func importCommand(ctx context.Context, p program.Process) *cobra.Command {
	var in importFlags
	cmd := &cobra.Command{
		Use: "import --mysql URL --store DIRECTORY --data DIRECTORY", Short: "Move a lab from CodaLab's own server", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Import everything from CodaLab's own server, version 1.7.3: users with their
passwords, groups, worksheets, permissions, and bundles with their contents. All
keep their ids. Tokens, chats, workers and e-mail verifications are not imported.

--mysql names its database: mysql://USER@HOST:PORT/DATABASE, or
mysql://USER@/DATABASE?unix_socket=PATH; ?tls=true encrypts. Give the password by
--mysql-password-file or in ` + passwordVariable + `: everybody on the machine can read a
command line. The database is only read, in one snapshot.

--store is the old server's CODALAB_HOME, where partitions/NAME/bundles has the
contents; or one partition; the flag may be repeated. Contents are copied, or hard
links with --link. They must be readable: run the command as the account of the new
server, or as root, and then give it the data directory.

Begin with --dry-run: it checks everything, measures the contents, and changes
nothing. It prints a line for each object that cannot be imported unchanged; solve
those that begin with "stops:" first.

The old server may run during the import. For a short pause, run with --contents-only
first, stop the old server but not its database, and run again without the flag: that
copies new contents and all rows. A run that is under way on the old server becomes
failed, and a waiting one continues to wait here.

An interrupted import continues when the command runs again. Until it is done, no
server starts on the data directory. To give up, remove the data directory; or, if
it had other data before, the file "importing" in it.

Exit codes: 0 done, or a dry run that nothing stops; 1 refused, failed, or stopped
by a problem; 2 the command line is wrong; 3 a database does not answer.`,
		RunE: func(*cobra.Command, []string) error { return in.run(ctx, p) },
	}
	in.at.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&in.mysql, "mysql", "", "the `URL` of the old server's database, mysql://USER@HOST:PORT/DATABASE")
	f.StringVar(&in.passwordFile, "mysql-password-file", "", "the `file` whose first line is the password of that database (default: $"+passwordVariable+")")
	f.StringArrayVar(&in.job.Stores, "store", nil, "a `directory` with the old server's contents; may be repeated")
	f.BoolVar(&in.dryRun, "dry-run", false, "check everything and change nothing")
	f.BoolVar(&in.job.ContentsOnly, "contents-only", false, "copy contents only; the next import continues")
	f.BoolVar(&in.job.Link, "link", false, "make hard links in place of copies, where both are on one file system")
	f.BoolVar(&in.job.AcceptMissing, "accept-missing", false, "import ready bundles whose contents are missing, without contents")
	f.BoolVar(&in.asJSON, "json", false, "print JSON")
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error { return errors.Join(check(cmd, args), in.check()) }
	return cmd
}

// check fails for a wrong command line.
func (in *importFlags) check() error {
	if in.mysql == "" {
		return program.Usage(errors.New("--mysql is needed: the URL of the old server's database"))
	}
	if err := codalabimport.CheckURL(in.mysql); err != nil {
		return program.Usage(fmt.Errorf("--mysql: %w", err))
	}
	if len(in.job.Stores) == 0 {
		return program.Usage(errors.New("--store is needed: the directory with the old server's contents"))
	}
	if in.dryRun && in.job.ContentsOnly {
		return program.Usage(errors.New("--dry-run copies nothing: leave out --contents-only"))
	}
	return nil
}

func (in *importFlags) run(ctx context.Context, p program.Process) error {
	if err := in.at.checkOwn(p); err != nil {
		return err
	}
	password := p.Getenv(passwordVariable)
	if in.passwordFile != "" {
		var err error
		if password, err = readPassword(p, in.passwordFile); err != nil {
			return err
		}
	}
	source, err := codalabimport.Open(ctx, in.mysql, password)
	if err != nil {
		return coded(err)
	}
	for i, dir := range in.job.Stores {
		if in.job.Stores[i], err = filepath.Abs(dir); err != nil {
			return errors.Join(fmt.Errorf("store %s: %w", dir, err), source.Close())
		}
	}
	show := newProgress(p)
	job := in.job
	job.Source, job.Dir, job.Database, job.Now = source, in.at.dir, in.at.database, p.Now()
	job.CheckHash, job.Progress = server.CheckPasswordHash, show.show
	do := job.Run
	if in.dryRun {
		do = job.Survey
	}
	report, err := do(ctx)
	show.end()
	if err != nil && !errors.Is(err, codalabimport.ErrStopped) {
		return coded(errors.Join(err, source.Close()))
	}
	err = errors.Join(err, source.Close(), p.Print(in.asJSON, report, in.text(report)))
	if err == nil && len(report.Stops()) > 0 {
		err = errors.New("an import would stop: see the problems")
	}
	return err
}

// text is a report for people.
func (in *importFlags) text(r codalabimport.Report) string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	const most = 20 // lines of one kind
	shown := map[string]int{}
	for _, p := range r.Problems {
		if shown[p.Kind]++; shown[p.Kind] > most {
			continue
		}
		begins := ""
		if p.Stops {
			begins = "stops: "
		}
		line("%s%s: %s: %s", begins, p.Kind, p.Object, p.Problem)
	}
	for _, kind := range slices.Sorted(maps.Keys(shown)) {
		if n := shown[kind] - most; n > 0 {
			line("%s: and %d more, which --json shows", kind, n)
		}
	}
	if r.Users > 0 {
		var states []string
		for _, state := range slices.Sorted(maps.Keys(r.States)) {
			states = append(states, fmt.Sprintf("%d %s", r.States[state], state))
		}
		line("users       %d", r.Users)
		line("groups      %d with %d members", r.Groups, r.Members)
		line("worksheets  %d with %d items", r.Worksheets, r.Items)
		line("bundles     %d: %s", r.Bundles, strings.Join(states, ", "))
		line("contents    %s in %d files of %d bundles; %d bundles are links", codalab.FormatSize(r.Contents.Bytes), r.Contents.Files, r.Contents.Bundles, r.Links)
		line("permissions %d", r.Permissions)
	}
	switch {
	case in.dryRun && len(r.Stops()) == 0:
		line("An import would copy this to %s.", in.at.dir)
	case r.Imported && r.Users == 0:
		line("%s has everything: an import that was interrupted had written it.", in.at.dir)
	case r.Imported:
		line("%s has everything. cl-server fsck --data %s checks it.", in.at.dir, in.at.dir)
	case in.job.ContentsOnly && len(r.Stops()) == 0:
		line("%s has the contents. Run the import again, without --contents-only.", in.at.dir)
	}
	return text.String()
}

// progress shows an import's progress on a terminal; it shows nothing elsewhere.
type progress struct {
	to    io.Writer
	now   func() time.Time
	step  codalabimport.Step
	begun time.Time
	shown time.Time
}

func newProgress(p program.Process) *progress {
	s := &progress{to: io.Discard, now: p.Now}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		s.to = termtext.Raw(p.Stderr)
	}
	return s
}

// show shows the progress of a step, at most a few times a second.
func (s *progress) show(step codalabimport.Step, done, total int64) {
	now := s.now()
	if s.step != step {
		s.end()
		s.step, s.begun = step, now
	}
	if now.Sub(s.shown) < 200*time.Millisecond && done < total {
		return
	}
	s.shown = now
	text := fmt.Sprintf("%d of %d bundles", done, total)
	if step == codalabimport.StepCopy {
		speed := int64(float64(done) / max(now.Sub(s.begun).Seconds(), 0.001))
		text = fmt.Sprintf("%s of %s [%s/s]", codalab.FormatSize(done), codalab.FormatSize(total), codalab.FormatSize(speed))
	}
	_, _ = fmt.Fprintf(s.to, "\r\x1b[K%s %s", step, text) // only a display
}

// end ends the line of a step.
func (s *progress) end() {
	if !s.shown.IsZero() {
		_, _ = fmt.Fprintln(s.to) // only a display
	}
	s.shown = time.Time{}
}
