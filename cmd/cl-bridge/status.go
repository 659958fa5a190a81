package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/status"
	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

const aboutStatus = `status shows whether a bridge runs, the number of its bundles in each phase, its
obstacles, the room on the shared disk, the causes of waits, and the bundle that has
waited longest. It reads the ledger and the bridge's last heartbeat, and changes
nothing. On a host that cannot read the ledger's file it shows the bridge's last record
in the shared directory. cl-bridge explain shows more about one bundle.

With --watch it shows that anew every two seconds until you interrupt it, with --json
a line of JSON each time.

Exit codes: 0 the bridge runs and nothing holds it up; 1 it runs, and something holds
bundles up, or the status could not be read; 2 the command line or the configuration is
wrong; 3 no bridge runs, or the ledger's server does not answer.`

func statusCommand(p program.Process) *cobra.Command {
	watch := false
	cmd := siteCommand(p, "status", "Show whether the bridge runs, its bundles and its obstacles", aboutStatus, cobra.NoArgs,
		func(ctx context.Context, s *site, _ []string) error {
			host, err := os.Hostname()
			if err != nil {
				return err
			}
			if watch {
				return s.watchStatus(ctx, host)
			}
			found, err := status.Collect(ctx, s.Config, host, s.Now())
			if errors.Is(err, status.ErrNoBridge) {
				return &program.Error{Code: program.ExitTransient, Err: err}
			}
			if err != nil {
				return err
			}
			if err := s.print(found, status.Text(found, s.Now())); err != nil {
				return err
			}
			return statusCode(found)
		})
	cmd.Flags().BoolVar(&watch, "watch", false, "show it anew every two seconds")
	return cmd
}

// statusCode returns an error with the exit code of a status, and without words; nil if all is well.
func statusCode(s heartbeat.Status) error {
	switch {
	case !s.Running:
		return &program.Error{Code: program.ExitTransient}
	case len(s.Holds) > 0:
		return &program.Error{Code: program.ExitFailure}
	}
	return nil
}

// watchEvery is the pause between two looks of --watch.
const watchEvery = 2 * time.Second

// watchStatus shows the status again and again until ctx ends. A look that fails shows its error, because what it
// reads may be there again at the next one.
func (s *site) watchStatus(ctx context.Context, host string) error {
	var screen *repaint.Screen
	if t, ok := repaint.OnTerminal(s.Stdout, s.Getenv); ok && !s.json {
		screen = t.Screen()
		defer screen.Close()
	}
	for ended := false; !ended; {
		found, err := status.Collect(ctx, s.Config, host, s.Now())
		if ctx.Err() == nil {
			if err := s.showAgain(screen, found, err); err != nil {
				return err
			}
		}
		ended = pause.For(ctx, watchEvery) != nil
	}
	return nil
}

// showAgain shows one look of --watch: in the place of the last one on a terminal, else below it.
func (s *site) showAgain(screen *repaint.Screen, found heartbeat.Status, err error) error {
	if s.json && err == nil {
		return json.NewEncoder(s.Stdout).Encode(found)
	}
	said := fmt.Sprintf("cl-bridge status, at %s\n\n", s.Now().Local().Format(time.TimeOnly))
	if err != nil {
		said += err.Error() + "\n"
	} else {
		said += status.Text(found, s.Now())
	}
	switch {
	case s.json:
		return err
	case screen != nil:
		return screen.Show(strings.Split(strings.TrimSuffix(termtext.Escape(said), "\n"), "\n"))
	}
	_, err = io.WriteString(s.Stdout, said+"\n")
	return err
}
