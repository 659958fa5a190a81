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
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// flushedAtOnce bounds the results of one request that are flushed to the disk at a time: flushes at the same time share the
// writes of a file system's journal.
const flushedAtOnce = 8

// batchResult are the results of one run among those of a request.
type batchResult struct {
	incoming
	of codalab.ResultsOf

	ctx    context.Context //nolint:containedctx // of one upload, which a later one of the run ends
	upload *resultUpload
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
	s.beginResults(r.Context(), all)
	if err := s.unpackResults(ctx, body, all); err != nil {
		return err
	}
	s.flushResults(ctx, all)
	for _, owned := range byOwner(all) {
		s.settle(ctx, owned...)
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
		one := &batchResult{of: of, incoming: incoming{bundle: b}}
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

// beginResults begins the uploads of a request before any of them is unpacked: after the begin of one, the others of its owner ask
// the store for the quota again.
func (s *Uploads) beginResults(client context.Context, all []*batchResult) {
	for _, one := range all {
		if one.err == nil {
			s.beginResult(client, one)
		}
	}
}

func (s *Uploads) beginResult(client context.Context, one *batchResult) {
	one.ctx, one.upload = s.results.begin(client, nil, one.of.UUID)
	one.finish = one.upload.unlessReplaced(one.check)
	s.begin(context.WithoutCancel(client), &one.incoming)
}

// check is finish, before another upload of the run begins. A bundle may have been made anew under its UUID since.
func (b *batchResult) check(to *store.Bundle) error {
	if identityOf(*to).Lasting() != b.of.Identity {
		return rest.Refuse(http.StatusConflict, "Contents cannot be stored: bundle %s is another one than that of these results.", b.of.UUID)
	}
	return uploadRequest{}.finish(b.bundle)(to)
}

// unpackResults unpacks the results of a request as they come. It fails if the request is broken.
func (s *Uploads) unpackResults(ctx context.Context, body *tar.Reader, all []*batchResult) error {
	for _, one := range all {
		h, err := body.Next()
		if err == nil && (h.Name != codalab.ResultsName(one.of.UUID) || h.Typeflag != tar.TypeReg) {
			err = errOrder
		}
		if err != nil {
			return badResults(err)
		}
		s.fill(ctx, &one.incoming, func(in *store.Upload, room *reservation) error {
			up := uploadRequest{filename: codalab.ResultsName(one.of.UUID), unpack: true}
			return one.upload.reason(s.storeBody(one.ctx, in, body, up, room))
		})
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

// flushResults flushes the results that were unpacked.
func (s *Uploads) flushResults(ctx context.Context, all []*batchResult) {
	var flushing errgroup.Group
	flushing.SetLimit(flushedAtOnce)
	for _, one := range all {
		flushing.Go(func() error {
			s.flush(ctx, &one.incoming)
			return nil
		})
	}
	_ = flushing.Wait() // each has its own error
}

// byOwner groups the results that may be stored by the owners of their bundles.
func byOwner(all []*batchResult) map[string][]*incoming {
	owned := map[string][]*incoming{}
	for _, one := range all {
		if one.err == nil {
			owned[one.room.ownerID] = append(owned[one.room.ownerID], &one.incoming)
		}
	}
	return owned
}

// answerResults returns the answers, and logs the server's own failures.
func (s *Uploads) answerResults(ctx context.Context, all []*batchResult) []codalab.ResultsAnswer {
	answers := make([]codalab.ResultsAnswer, 0, len(all))
	for _, one := range all {
		answer := codalab.ResultsAnswer{UUID: one.of.UUID}
		if no, refused := errors.AsType[*rest.RefusalError](one.err); refused {
			answer.Status, answer.Message = no.Status, no.Message
		} else if one.err != nil {
			failures.Log(ctx, s.log, "store contents of bundle "+one.of.UUID, one.err)
			answer.Status, answer.Message = uploadError(one.err)
		}
		answers = append(answers, answer)
	}
	return answers
}

// endResults ends the uploads of a request.
func (s *Uploads) endResults(ctx context.Context, all []*batchResult) {
	for _, one := range all {
		s.end(ctx, &one.incoming)
		if one.upload != nil {
			one.upload.end()
		}
	}
}
