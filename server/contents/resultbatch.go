package contents

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// flushedAtOnce bounds the results of one request that are flushed to the disk at a time: flushes at the same time share the
// writes of a file system's journal.
const flushedAtOnce = 8

// batchResult are the results of one run among those of a request, on their way into the store.
type batchResult struct {
	of     codalab.ResultsOf
	bundle store.Bundle
	// err is why they are not stored; nil while they may be.
	err error

	ctx    context.Context //nolint:containedctx // of one upload, which a later one of the run ends
	upload *resultUpload
	in     *store.Upload
	room   *reservation
	extent codalab.Extent
	// doubtful means that the store may have the results in spite of err.
	doubtful bool
}

// uploadResults stores the results of several runs of a worker. Each is stored as by upload or refused, and then its worker
// sends it by upload, which has the words for its user. All are flushed before one transaction gives them to their bundles.
func (s *Uploads) uploadResults(w http.ResponseWriter, r *http.Request, u store.User) error {
	body := tar.NewReader(http.MaxBytesReader(w, r.Body, codalab.MostResultsBytes))
	list, err := readResultsList(body)
	if err != nil {
		return err
	}
	all, err := s.findResults(r.Context(), u, r.PathValue("worker"), list)
	if err != nil {
		return err
	}
	ctx := context.WithoutCancel(r.Context()) // once all of them are here, the client need not wait
	defer s.endResults(ctx, all)
	s.beginResults(w, r, all)
	if err := s.unpackResults(body, all); err != nil {
		for _, one := range all {
			one.fail(err)
		}
		return err
	}
	s.flushResults(ctx, all)
	for _, owned := range byOwner(all) {
		s.settleResults(ctx, owned)
	}
	return rest.WriteJSON(w, http.StatusOK, codalab.ResultsAnswers{Bundles: s.answerResults(ctx, all)})
}

// badResults refuses a request as a whole.
func badResults(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return rest.Refuse(http.StatusRequestEntityTooLarge, "A worker may send %d bytes of results at once", codalab.MostResultsBytes)
	case rest.TooSlow(err):
		return rest.Refuse(http.StatusRequestTimeout, "the contents came too slowly")
	}
	return rest.Refuse(http.StatusBadRequest, "Invalid results: %v", err)
}

// errOrder means entries that are not those of the list.
var errOrder = errors.New("the entries are not those of the list, in its order")

// readResultsList reads the first entry of a request.
func readResultsList(body *tar.Reader) (list codalab.ResultsList, err error) {
	h, err := body.Next()
	if err == nil && h.Name != codalab.ResultsIndex {
		err = errOrder
	}
	var text []byte
	const mostText = codalab.MostResults << 10
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(body, mostText))
	}
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return list, badResults(err)
	}
	if len(list.Bundles) > codalab.MostResults {
		return list, rest.Refuse(http.StatusRequestEntityTooLarge, "A worker may send the results of %d bundles at once", codalab.MostResults)
	}
	named := map[string]bool{}
	for _, one := range list.Bundles {
		if named[one.UUID] {
			return list, rest.Refuse(http.StatusBadRequest, "Bundle %s is given twice", one.UUID)
		}
		named[one.UUID] = true
	}
	return list, nil
}

// findResults finds the bundles of a list, and refuses those that their worker must not change.
func (s *Uploads) findResults(ctx context.Context, u store.User, worker string, list codalab.ResultsList) ([]*batchResult, error) {
	uuids := make([]string, 0, len(list.Bundles))
	for _, of := range list.Bundles {
		uuids = append(uuids, of.UUID)
	}
	found, err := s.store.Bundles(ctx, uuids)
	if err != nil {
		return nil, err
	}
	may, err := s.access.BundlePermissions(ctx, u, slices.Collect(maps.Values(found))...)
	if err != nil {
		return nil, err
	}
	key := store.Worker{User: u.ID, ID: worker}
	all := make([]*batchResult, 0, len(list.Bundles))
	for _, of := range list.Bundles {
		b := found[of.UUID]
		one := &batchResult{of: of, bundle: b}
		switch have := may[of.UUID]; {
		case have < store.PermissionRead:
			one.fail(rest.Refuse(http.StatusNotFound, "Could not find bundle with uuid %s", of.UUID))
		case have < store.PermissionAll:
			one.fail(access.Forbidden(u, "bundle", of.UUID, have, store.PermissionAll))
		case identityOf(b).Lasting() != of.Identity || of.Identity == "":
			one.fail(rest.Refuse(http.StatusConflict, "Contents cannot be stored: bundle %s is another one than that of these results.", of.UUID))
		case b.State.Final():
			one.fail(errFinal(b))
		case !b.State.OnWorker() || b.Worker != key || b.Metadata.String("link_url") != "":
			one.fail(rest.Refuse(http.StatusForbidden, "Contents cannot be stored: worker %s does not have bundle %s.", worker, of.UUID))
		}
		all = append(all, one)
	}
	return all, nil
}

// identityOf returns the identity of a stored bundle, as its run message tells it.
func identityOf(b store.Bundle) codalab.Identity {
	return codalab.Identity{UUID: b.UUID, OwnerID: b.OwnerID, Created: b.Metadata.Int("created"), Command: rest.Deref(b.Command)}
}

// fail notes why results are not stored, unless there is an earlier reason.
func (b *batchResult) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// beginResults begins the uploads of a request, before any of them takes a part of the quota: each ends what the others have
// learned of it.
func (s *Uploads) beginResults(w http.ResponseWriter, r *http.Request, all []*batchResult) {
	for _, one := range all {
		if one.err == nil {
			one.fail(s.beginResult(w, r, one))
		}
	}
}

func (s *Uploads) beginResult(w http.ResponseWriter, r *http.Request, one *batchResult) (err error) {
	ctx, upload := s.results.begin(r.Context(), w, one.of.UUID)
	one.ctx, one.upload = ctx, upload
	one.room, err = s.quotas.reserve(ctx, one.bundle)
	return err
}

// unpackResults unpacks the results of a request as they come. It fails if the request is broken.
func (s *Uploads) unpackResults(body *tar.Reader, all []*batchResult) error {
	for _, one := range all {
		h, err := body.Next()
		if err == nil && (h.Name != codalab.ResultsName(one.of.UUID) || h.Typeflag != tar.TypeReg) {
			err = errOrder
		}
		if err != nil {
			return badResults(err)
		}
		if one.err != nil {
			continue
		}
		if err := s.unpackResult(one, body); err != nil {
			one.fail(err)
			one.room.end() // it is for the others
		}
		var broken sourceError
		if errors.As(one.err, &broken) {
			return badResults(broken)
		}
	}
	if _, err := body.Next(); !errors.Is(err, io.EOF) {
		return badResults(errors.Join(errOrder, err))
	}
	return nil
}

// unpackResult unpacks the results of one run within its owner's quota.
func (s *Uploads) unpackResult(one *batchResult, body io.Reader) (err error) {
	if one.in, err = s.store.NewUpload(one.of.UUID); err != nil {
		return err
	}
	return s.storeBody(one.ctx, one.in, body, uploadRequest{filename: codalab.ResultsName(one.of.UUID), unpack: true}, one.room)
}

// flushResults flushes the results that were unpacked.
func (s *Uploads) flushResults(ctx context.Context, all []*batchResult) {
	var flushing errgroup.Group
	flushing.SetLimit(flushedAtOnce)
	for _, one := range all {
		if one.err != nil {
			continue
		}
		flushing.Go(func() error {
			var err error
			one.extent, err = s.store.CompleteUpload(ctx, one.in, one.bundle)
			one.fail(err)
			return nil
		})
	}
	_ = flushing.Wait() // each has its own error
}

// byOwner groups the results that may be stored by the owners of their bundles.
func byOwner(all []*batchResult) map[string][]*batchResult {
	owned := map[string][]*batchResult{}
	for _, one := range all {
		if one.err == nil {
			owned[one.room.ownerID] = append(owned[one.room.ownerID], one)
		}
	}
	return owned
}

// settleResults gives the flushed results of one owner to their bundles, in one transaction.
func (s *Uploads) settleResults(ctx context.Context, all []*batchResult) {
	var rooms []*reservation
	for _, one := range all {
		rooms = append(rooms, one.room)
	}
	settled := settleAll(rooms, func(i int) codalab.Extent { return all[i].extent }, func(i int, err error) { all[i].fail(err) }, func() error {
		var changes []store.BundleChange
		for _, one := range all {
			if one.err == nil {
				changes = append(changes, store.BundleChange{UUID: one.of.UUID, Decide: one.decide})
			}
		}
		changed, err := s.store.ChangeEach(ctx, changes)
		for _, one := range all {
			if _, there := changed[one.of.UUID]; !there && err == nil {
				one.fail(rest.Refuse(http.StatusNotFound, "Could not find bundle with uuid %s", one.of.UUID))
			}
		}
		return err
	})
	for _, one := range all {
		one.doubtful = one.err == nil && errors.Is(settled, sqldb.ErrInDoubt)
		one.fail(settled)
	}
}

// decide gives the results to their bundle, or leaves it as it is and notes why: it must not fail, because the transaction is
// for other bundles, too. It may be called again.
func (b *batchResult) decide(to *store.Bundle) error {
	next := *to
	stored.Become(&next, stored.Plan(next).Fill(b.in.Name, b.extent))
	next.Record(codalab.ActionUploaded, codalab.EventDetails{})
	err := b.upload.refusal()
	if err == nil && identityOf(*to).Lasting() != b.of.Identity {
		err = rest.Refuse(http.StatusConflict, "Contents cannot be stored: bundle %s is another one than that of these results.", b.of.UUID)
	}
	if err == nil {
		err = uploadRequest{}.finish(b.bundle)(&next)
	}
	if b.err = err; err == nil {
		*to = next
	}
	return nil
}

// answerResults returns the answers, tells of the bundles that have changed, and logs the server's own failures.
func (s *Uploads) answerResults(ctx context.Context, all []*batchResult) []codalab.ResultsAnswer {
	answers := make([]codalab.ResultsAnswer, 0, len(all))
	var changed []string
	for _, one := range all {
		answer := codalab.ResultsAnswer{UUID: one.of.UUID}
		no, refused := errors.AsType[*rest.RefusalError](one.err)
		switch {
		case one.err == nil:
			changed = append(changed, one.of.UUID)
		case refused:
			answer.Status, answer.Message = no.Status, no.Message
		default:
			failures.Log(ctx, s.log, "store contents of bundle "+one.of.UUID, one.err)
			answer.Status, answer.Message = uploadError(one.err)
		}
		answers = append(answers, answer)
	}
	if len(changed) > 0 {
		s.changed(changed...)
	}
	return answers
}

// endResults ends the uploads of a request. Results that are not stored are removed, unless the store may have them: then
// Sweep removes those that it has not.
func (s *Uploads) endResults(ctx context.Context, all []*batchResult) {
	for _, one := range all {
		if one.in != nil {
			end := one.in.Close
			if one.err != nil && !one.doubtful {
				end = one.in.Remove
			}
			failures.Log(ctx, s.log, "end the upload of bundle "+one.of.UUID, end())
		}
		if one.room != nil {
			one.room.end()
		}
		if one.upload != nil {
			one.upload.end()
		}
	}
}
