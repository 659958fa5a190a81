package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

func ledgerFlag(cmd *cobra.Command, where *string) {
	cmd.Flags().StringVar(where, "ledger", "",
		"the bridge's `ledger`, an SQLite file or postgres://…, instead of the configuration's; better there, when it has a password")
}

// siteFlags are the flags by which a command finds its bridge.
type siteFlags struct{ config, ledger string }

func (f *siteFlags) flags(cmd *cobra.Command, p program.Process) {
	configFlag(cmd, p, &f.config)
	ledgerFlag(cmd, &f.ledger)
}

// read reads the configuration and fills in the ledger.
func (f siteFlags) read(p program.Process) (config.Config, error) {
	c, err := config.Read(f.config)
	if err != nil {
		return c, &program.Error{Code: program.ExitUsage, Err: err}
	}
	c.Ledger, err = ledgerPlace(p, c, f.ledger)
	return c, err
}

// openToJudge opens a ledger that must exist, because it says what may be removed.
func openToJudge(ctx context.Context, where string) (*ledger.Reader, error) {
	r, err := ledger.OpenToRead(ctx, where)
	if errors.Is(err, ledger.ErrAbsent) {
		return nil, fmt.Errorf("there is no ledger at %s: without one nobody can say what is needed", sqldb.Name(where))
	}
	return r, err
}

// ledgerPlace returns the ledger that the flag names, or else the configuration, or else
// the one in the directory of the user's state.
func ledgerPlace(p program.Process, c config.Config, flag string) (string, error) {
	if flag != "" {
		if err := sqldb.Check(flag); err != nil {
			return "", &program.Error{Code: program.ExitUsage, Err: fmt.Errorf("--ledger: %w", err)}
		}
		return flag, nil
	}
	if c.Ledger != "" {
		return c.Ledger, nil
	}
	state, err := userDir(p, "XDG_STATE_HOME", ".local", "state")
	if err != nil {
		return "", fmt.Errorf("find ledger: %w; set ledger in the configuration", err)
	}
	return filepath.Join(state, "ledger.db"), nil
}

// takeLedger locks and opens the ledger: only one bridge may work on it.
func takeLedger(ctx context.Context, where string) (book *ledger.Ledger, release func(), err error) {
	if !sqldb.IsURL(where) {
		if err := os.MkdirAll(filepath.Dir(where), 0o700); err != nil {
			return nil, nil, fmt.Errorf("make room for the ledger: %w", err)
		}
	}
	unlock, err := ledger.Lock(ctx, where)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	book, err = ledger.Open(ctx, where)
	if err != nil {
		unlock()
		return nil, nil, unavailable(err)
	}
	return book, func() {
		_ = book.Close() // every row was committed when it was saved
		unlock()
	}, nil
}

// unavailable gives the error of a database that does not answer, or whose disk is full,
// the exit code of a server that does not answer.
func unavailable(err error) error {
	if errors.Is(err, sqldb.ErrUnavailable) || errors.Is(err, sqldb.ErrFull) {
		return &program.Error{Code: program.ExitTransient, Err: err}
	}
	return err
}
