package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/admin/bundlelogs"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/spool"
)

const aboutLogs = `logs shows in one place all that was written down about a bundle: its phase and history as
cl-bridge explain shows them, the lines of the bridge's log that name it, and for each attempt
Slurm's output file and the worker's records. The files stay until keep_after_ack after the end.

The log is the journal of the user's service manager on this host, or with --log a file to which
you let the bridge write. BUNDLE is as for cl-bridge explain: a UUID or the beginning of one, a job
id, or a name.`

func logsCommand(p program.Process) *cobra.Command {
	s := &site{Process: p}
	file := ""
	cmd := s.command("logs BUNDLE", "Show all records of a bundle", aboutLogs, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return s.logs(ctx, args[0], file)
	})
	cmd.ValidArgsFunction = s.completeBundles
	cmd.Flags().StringVar(&file, "log", "", "search this log `file` and not the journal")
	jsonFlag(cmd, &s.json)
	return cmd
}

func (s *site) logs(ctx context.Context, bundle, file string) error {
	if err := diskspace.Answers(ctx, s.Shared); err != nil {
		return err
	}
	e, err := s.explained(ctx, bundle)
	if err != nil {
		return err
	}
	found, err := bundlelogs.Collect(e, spool.Layout(s.Shared))
	if err != nil {
		return err
	}
	if file == "" {
		found.AddJournal(ctx, s.Environ)
	} else if err := found.AddFile(file); err != nil {
		return program.Usage(err)
	}
	return s.print(found, bundlelogs.Text(found, s.Now()))
}
