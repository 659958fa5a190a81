package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/appendfile"
	"github.com/cl-slurm/cl-slurm/server"
)

// auditFlags are the flags of the audit file.
type auditFlags struct {
	file, size string
	keep       int
}

func (a *auditFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.file, "audit-file", "", "the `file` to which the server appends a line of JSON for each request that may change something (default: only the log has these lines)")
	f.StringVar(&a.size, "audit-size", "100m", "the `size` at which the audit file is renamed to FILE.1, and a new one begins; 0 leaves that to another program")
	f.IntVar(&a.keep, "audit-keep", 10, "the `number` of older audit files that are kept")
}

// with calls serve with the audit file open.
func (a *auditFlags) with(config *server.Config, serve func() error) error {
	if a.file == "" {
		return serve()
	}
	size, err := codalab.ParseSize(a.size)
	if err != nil {
		return program.Usage(fmt.Errorf("--audit-size: %w", err))
	}
	if a.keep < 1 {
		return program.Usage(fmt.Errorf("--audit-keep %d: at least one older file is kept", a.keep))
	}
	file, err := appendfile.Open(a.file, appendfile.Rotation{Size: size, Keep: a.keep, Failed: func(err error) {
		config.Log.Error("failed", slog.String("doing", "rotate the audit file"), slog.String("error", err.Error()))
	}})
	if err != nil {
		return fmt.Errorf("--audit-file: %w", err)
	}
	config.Audit = file
	return errors.Join(serve(), file.Close())
}
