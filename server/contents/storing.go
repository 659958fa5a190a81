package contents

import (
	"context"
	"errors"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// incoming are new contents of a bundle on their way into the store: alone, or beside those of other bundles. Uploads takes them
// through the steps begin, fill, flush, settle and end. A step that fails notes why, and begin, fill and flush leave out
// contents that have failed.
type incoming struct {
	bundle store.Bundle // as it was when they began to come
	// finish changes the bundle in the transaction that gives it the contents, or refuses them. It must only change the bundle:
	// it may be called again.
	finish func(*store.Bundle) error
	// err is why they are not stored; nil while they may be.
	err error

	room   *reservation
	in     *store.Upload
	extent codalab.Extent
	// settled means that the bundle has them, and doubtful that it may have them in spite of err.
	settled, doubtful bool
}

// fail notes why contents are not stored, unless there is an earlier reason.
func (c *incoming) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// begin reserves a part of the quota of the bundle's owner. ctx is that of the whole reservation.
func (s *Uploads) begin(ctx context.Context, c *incoming) {
	if c.err != nil {
		return
	}
	room, err := s.quotas.reserve(ctx, c.bundle)
	c.room = room
	c.fail(err)
}

// fill writes the contents by write, within the reservation. If that fails, it ends them, so that the owner's other uploads get the
// reservation.
func (s *Uploads) fill(ctx context.Context, c *incoming, write func(*store.Upload, *reservation) error) {
	if c.err != nil {
		return
	}
	in, err := s.store.NewUpload(c.bundle.UUID)
	if c.in = in; err == nil {
		err = write(in, c.room)
	}
	if err != nil {
		c.fail(err)
		s.end(ctx, c)
	}
}

// flush makes the contents durable.
func (s *Uploads) flush(ctx context.Context, c *incoming) {
	if c.err != nil {
		return
	}
	var err error
	c.extent, err = s.store.CompleteUpload(ctx, c.in, c.bundle)
	c.fail(err)
}

// settle gives contents, of which no step has failed, to their bundles, which are one owner's, in one transaction: all but those
// that exceed the quota, or whose finish refuses them. They count in the store in place of their reservations then, as one
// step that no other upload of the owner can see half done.
func (s *Uploads) settle(ctx context.Context, all ...*incoming) {
	account := all[0].room.account
	account.mu.Lock()
	defer account.mu.Unlock()
	var changes []store.BundleChange
	for _, c := range all {
		c.fail(c.room.takeRestLocked(c.extent))
		if c.err == nil {
			changes = append(changes, store.BundleChange{UUID: c.bundle.UUID, Decide: c.decide})
		}
	}
	changed, err := s.store.ChangeEach(ctx, changes)
	for _, c := range all {
		switch _, there := changed[c.bundle.UUID]; {
		case err != nil:
			c.doubtful = c.err == nil && (errors.Is(err, sqldb.ErrInDoubt) || ctx.Err() != nil)
			c.fail(err)
			continue
		case !there:
			c.fail(rest.Refuse(http.StatusNotFound, "Could not find bundle with uuid %s", c.bundle.UUID))
		case c.err == nil:
			c.settled = true
			s.changed(c.bundle.UUID)
		}
		c.room.endLocked()
	}
}

// decide gives the contents to their bundle, or leaves it as it is and notes why: it must not fail, because the transaction is
// for other bundles, too.
func (c *incoming) decide(to *store.Bundle) error {
	next := *to
	stored.Become(&next, stored.Plan(next).Fill(c.in.Name, c.extent))
	next.Record(codalab.ActionUploaded, codalab.EventDetails{})
	if c.err = c.finish(&next); c.err == nil {
		*to = next
	}
	return nil
}

// end ends the reservation, and removes contents that the bundle has not. Sweep removes those that it may have, or that were
// being written when the server stopped, if it has them not. end may be called again.
func (s *Uploads) end(ctx context.Context, c *incoming) {
	if c.in != nil {
		end := c.in.Remove
		if c.settled || c.doubtful || ctx.Err() != nil {
			end = c.in.Close
		}
		failures.Log(ctx, s.log, "end the upload of bundle "+c.bundle.UUID, end())
		c.in = nil
	}
	if c.room != nil {
		c.room.end()
	}
}
