package assembly

import (
	"context"

	"github.com/cl-slurm/cl-slurm/bridge/ledger"
)

// TakeLedger locks and opens the ledger: only one bridge may work on it.
func TakeLedger(ctx context.Context, where string) (book *ledger.Ledger, release func(), err error) {
	if err := ledger.MakeDir(where); err != nil {
		return nil, nil, err
	}
	unlock, err := ledger.Lock(ctx, where)
	if err != nil {
		return nil, nil, err
	}
	book, closing, err := openLedger(ctx, where)
	if err != nil {
		unlock()
		return nil, nil, err
	}
	return book, func() { closing(); unlock() }, nil
}

// openLedger opens a ledger that the caller has locked.
func openLedger(ctx context.Context, where string) (book *ledger.Ledger, release func(), err error) {
	book, err = ledger.Open(ctx, where)
	if err != nil {
		return nil, nil, err
	}
	return book, func() { _ = book.Close() }, nil // every row was committed when it was saved
}
