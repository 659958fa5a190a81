package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
)

// openToJudge opens a ledger that must exist, because it says what may be removed.
func openToJudge(ctx context.Context, where string) (*ledger.Reader, error) {
	r, err := ledger.OpenToRead(ctx, where)
	if errors.Is(err, ledger.ErrAbsent) {
		return nil, fmt.Errorf("there is no ledger at %s: without one nobody can say what is needed", sqldb.Name(where))
	}
	return r, err
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
		return nil, nil, err
	}
	book, err = ledger.Open(ctx, where)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return book, func() {
		_ = book.Close() // every row was committed when it was saved
		unlock()
	}, nil
}
