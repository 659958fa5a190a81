package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/cmd/internal/livetable"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// topFields are the columns of cl top.
const topFields = "uuid,name,state,time,created,summary"

const topHelp = `Show bundles on the terminal as they change: your runs that have not ended, and those
that ended lately. Keys show the output of a bundle as it grows, kill it, sort and filter;
? lists them.

  cl top                         your runs
  cl top lr-sweep                the runs of a sweep
  cl top ^1-12                   these bundles
  cl top owner=ann state=running what cl search finds
  cl top -f name,state,time,/stats.json:acc
                                 with these columns

The server is asked once a second, and more seldom if it is slow or the bundles are many:
at most a thirtieth of the time goes into questions. Without a terminal, cl ls --watch
prints changes as lines.`

// topCommand has no equal in CodaLab's cl.
func (c *cli) topCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "top [<bundle>|<sweep>|<keyword>]...", Short: "Watch your runs on the terminal, with keys to kill them",
		Long: topHelp, ValidArgsFunction: c.completeBundles,
	}
	worksheet := c.worksheetFlag(cmd)
	c.colourFlag(cmd)
	fields := cmd.Flags().StringP("field", "f", topFields, "show these comma-separated fields as columns")
	_ = cmd.RegisterFlagCompletionFunc("field", completeFields) // the flag is there
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := readFields(*fields)
		if err != nil {
			return err
		}
		return c.top(cmd.Context(), *worksheet, args, list)
	}
	return cmd
}

// top shows bundles until the user ends it.
func (c *cli) top(ctx context.Context, worksheet string, args, fields []string) error {
	if c.asJSON {
		return refusef("cl top is for people: cl search .mine --watch --json prints each change as a line")
	}
	fd, ok := terminal(c.Stdout)
	_, typed := terminal(c.Stdin)
	if !ok || !typed || colour.Dumb(c.Getenv) || !colour.Enable(fd) {
		return refusef("cl top needs a terminal: cl ls --watch prints changes as lines, and with --json as objects")
	}
	at, err := c.workspace(worksheet)
	if err != nil {
		return err
	}
	s, err := c.topSource(ctx, at, worksheet, args, fields)
	if err != nil {
		return err
	}
	right := make([]bool, len(fields))
	for i, f := range fields {
		right[i] = f == "data_size" || f == "time" || isFile(f)
	}
	c.drawing = true
	m := livetable.New(s.source(ctx), "cl top", fields, right, c.palette(c.Stdout))
	_, err = tea.NewProgram(m,
		tea.WithContext(ctx), tea.WithInput(c.Stdin), tea.WithOutput(termtext.Raw(c.Stdout)), tea.WithEnvironment(c.Environ),
		tea.WithoutSignalHandler(), tea.WithFPS(20),
	).Run()
	switch {
	case errors.Is(m.Err(), livetable.ErrInterrupted) || ctx.Err() != nil:
		return &program.Error{Code: program.ExitInterrupted}
	case m.Err() != nil:
		return m.Err()
	case err != nil:
		return fmt.Errorf("use the terminal: %w", err)
	}
	return nil
}

// topShare is the least ratio of the pause after a question to the time that the answer took.
const topShare = 30

func topPause(took time.Duration, failures int) time.Duration {
	if failures > 0 {
		return watchPause(took, failures)
	}
	return max(watchEvery, topShare*took)
}

// topSource asks the server for the bundles of cl top.
func (c *cli) topSource(ctx context.Context, at *workspace, worksheet string, args, fields []string) (*bundleSource, error) {
	s := &bundleSource{cli: c, at: at, fields: fields, keys: shownKeys(fields)}
	if s.keys != nil {
		s.keys = append(s.keys, "time", "created", "staged_status", "run_status", "failure_message")
	}
	switch {
	case len(args) == 0:
		s.keywords, s.lately = []string{".mine", "type=run", ".limit=1000", ".last", "state=" + strings.Join(unended(), ",")}, true
	case slices.ContainsFunc(args, isKeyword):
		s.keywords = append([]string{watchedMost}, args...)
	default:
		var err error
		if s.at, s.uuids, err = c.bundlesAndSweeps(ctx, worksheet, args, anyRun); err != nil {
			return nil, err
		}
	}
	var err error
	s.sheet, err = s.at.worksheetUUID(ctx)
	return s, err
}

// unended are the states of a run that has not ended.
func unended() []string {
	var list []string
	for _, s := range []codalab.State{
		codalab.StateCreated, codalab.StateStaged, codalab.StateMaking, codalab.StateStarting, codalab.StatePreparing, codalab.StateRunning,
		codalab.StateFinalizing, codalab.StateWorkerOffline,
	} {
		list = append(list, string(s))
	}
	return list
}

// source is what the table of cl top needs.
func (s *bundleSource) source(ctx context.Context) livetable.Source {
	return livetable.Source{
		Rows:   func() ([]livetable.Row, error) { return s.rows(ctx) },
		Kill:   func(uuid string) error { return explain(s.at.KillBundles(ctx, uuid)) },
		Info:   func(uuid string) (string, error) { return s.info(ctx, uuid) },
		Output: func(uuid, file string) (string, error) { return s.output(ctx, uuid, file) },
		Pause:  topPause,
		Fatal:  func(err error) bool { return !transient(err) },
		Now:    s.Now,
	}
}

// info is the text of cl info.
func (s *bundleSource) info(ctx context.Context, uuid string) (string, error) {
	found, err := s.at.Bundles(ctx, s.sheet, []string{uuid}, client.IncludeOwner, client.IncludePermissions)
	if err != nil {
		return "", explain(err)
	}
	if s.me.ID == "" {
		if s.me, err = s.at.User(ctx); err != nil {
			return "", explain(err)
		}
	}
	return termtext.Escape(strings.Join(s.infoLines(ctx, s.at, s.me, found[0], infoOptions{}), "\n")), nil
}

// outputLines is the number of lines of a file that cl top shows, and outputBytes their greatest size.
const (
	outputLines = 500
	outputBytes = 1 << 20
)

// output is the end of a file of a bundle. One that is not there yet is empty.
func (s *bundleSource) output(ctx context.Context, uuid, file string) (string, error) {
	text, err := s.readEnd(ctx, codalab.Target{BundleUUID: uuid, Subpath: file})
	if isNotFound(err) {
		return fmt.Sprintf("(There is no %s yet.)", file), nil
	}
	return text, explain(err)
}
