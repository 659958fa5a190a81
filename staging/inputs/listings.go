package inputs

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/sharedcall"
	"github.com/cl-slurm/cl-slurm/staging/results"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// listings remembers the first bytes of bundles' listings on the server for a minute, because many
// parts of one bundle are often requested at the same time.
type listings struct {
	calls sharedcall.Group[string]
	heads sync.Map // bundle to string
}

func (l *listings) recall(bundle string) (head string, ok bool) {
	v, _ := l.heads.Load(bundle)
	head, ok = v.(string)
	return head, ok
}

// listingHead returns the first bytes of a bundle's listing on the server, or "" if it has none. It
// asks in the transfer's turn.
func (d *Dependencies) listingHead(ctx context.Context, t *transfer.Transfer, bundle string) (head string, err error) {
	if head, ok := d.listings.recall(bundle); ok {
		return head, nil
	}
	err = t.InTurn(ctx, func() (err error) {
		head, err = d.listings.calls.Do(ctx, bundle, func(ctx context.Context) (string, error) {
			if head, ok := d.listings.recall(bundle); ok { // another call has just ended
				return head, nil
			}
			head, err := d.askListing(ctx, bundle)
			if err == nil {
				d.listings.heads.Store(bundle, head)
				time.AfterFunc(time.Minute, func() { d.listings.heads.Delete(bundle) })
			}
			return head, err
		})
		return err
	})
	return head, err
}

func (d *Dependencies) askListing(ctx context.Context, bundle string) (string, error) {
	t := codalab.Target{BundleUUID: bundle, Subpath: results.ListingName}
	info, err := d.Contents.ContentsInfo(ctx, t, 0)
	var serverErr *codalab.Error
	switch {
	case errors.As(err, &serverErr) && !serverErr.Transient():
		return "", nil // there is none, or the download is refused, too
	case err != nil:
		return "", err
	case info.Type != codalab.TargetFile || info.Size == 0: // a server may refuse any range of an empty file
		return "", nil
	}
	r, err := d.Contents.OpenContents(ctx, t, &client.Range{Length: results.ListingHead})
	if err != nil {
		return "", err
	}
	head, err := io.ReadAll(io.LimitReader(r, results.ListingHead))
	return string(head), errors.Join(err, r.Close())
}
