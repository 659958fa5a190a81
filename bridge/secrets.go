package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// giveSecrets fetches the values of a bundle's secrets from the server and writes them to the file of its submission. The
// bridge keeps the values nowhere else. A secret that the owner has removed fails the bundle, with the server's sentence.
func (d *doer) giveSecrets(ctx context.Context, r plan.Row) (plan.Outcome, error) {
	if len(r.SecretNames()) == 0 {
		return plan.Outcome{}, nil
	}
	if d.secrets == nil {
		return plan.Outcome{Failure: "this worker gives runs no secrets", Final: true}, nil
	}
	values, err := d.secrets.Service.RunSecrets(ctx, d.workerID(r.Queue), r.Bundle)
	var refused *codalab.Error
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return plan.Outcome{Failure: refused.Message, Final: true}, nil
	}
	if err != nil {
		o := outcome(fmt.Errorf("get the run's secrets from the server: %w", err))
		o.Final = false // a login or a permission can be repaired
		return o, nil
	}
	if err := d.secrets.Files.GiveSecrets(r.Bundle, d.inForce.now().Submission(r), values); err != nil {
		o := outcome(err)
		o.Final = false
		return o, err
	}
	return plan.Outcome{}, nil
}

// withdrawEvery is the pause between two looks for values of secrets that no job needs any more.
const withdrawEvery = 10 * time.Second

// secretWatch removes files with values of secrets that no worker has taken, and that none needs any more: because the
// attempt was stopped before it began, or its worker died as it began, or a bridge crashed.
type secretWatch struct {
	secrets *Secrets
	inForce *inForce
	view    *view
	now     func() time.Time
	log     *slog.Logger
}

// run looks every withdrawEvery until ctx ends.
func (w *secretWatch) run(ctx context.Context) error {
	return tryEvery(ctx, withdrawEvery, w.now, func(time.Time) error { return w.withdraw() }, func(err error) {
		w.log.WarnContext(ctx, "cannot remove values of secrets that no job needs", errorAttr(err))
	})
}

// withdraw implements Bridge.WithdrawSecrets. It lists the files before it looks at the rows: a row is saved before the
// file of its submission is written, so a file without such a row belongs to an earlier one.
func (w *secretWatch) withdraw() error {
	files, err := w.secrets.Files.GivenSecrets()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		if r, ok := w.view.row(f.Bundle); ok && r.NeedsSecrets() && w.inForce.now().Submission(r) == f.Submission {
			continue
		}
		errs = append(errs, w.secrets.Files.WithdrawSecrets(f))
	}
	return errors.Join(errs...)
}
