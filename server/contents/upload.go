package contents

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/stored"
)

// uploadRequest is the query of an upload.
type uploadRequest struct {
	filename          string
	urls              []string // the server fetches the contents from there; empty if the request has them
	git               bool
	unpack            bool
	finalizeOnSuccess bool
	finalizeOnFailure bool
	stateOnSuccess    codalab.State
	// atLeast is the least that the contents have; zero if the client does not tell.
	atLeast codalab.Extent
}

func parseUpload(q url.Values) (uploadRequest, error) {
	up := uploadRequest{filename: q.Get("filename"), stateOnSuccess: codalab.State(q.Get("state_on_success"))}
	if up.stateOnSuccess == "" {
		up.stateOnSuccess = codalab.StateReady
	}
	for name, f := range map[string]struct {
		to      *bool
		missing bool
	}{
		"unpack": {&up.unpack, true}, "git": {&up.git, false}, "finalize_on_success": {&up.finalizeOnSuccess, true}, "finalize_on_failure": {&up.finalizeOnFailure, false},
	} {
		var err error
		if *f.to, err = rest.BoolParam(q, name, f.missing); err != nil {
			return up, err
		}
	}
	for name, to := range map[string]*int64{"size": &up.atLeast.Bytes, "entries": &up.atLeast.Entries} {
		n, err := strconv.ParseInt(cmp.Or(q.Get(name), "0"), 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			return up, rest.Refuse(http.StatusBadRequest, "%s must be a number of at least 0, not '%s'", name, q.Get(name))
		}
		*to = n
	}
	if up.finalizeOnSuccess && !up.stateOnSuccess.Final() {
		return up, rest.Refuse(http.StatusBadRequest, "state_on_success must be one of ready|failed|killed")
	}
	if up.filename == "" { // otherwise the request has the contents
		up.urls = q["urls"]
	}
	return up, nil
}

// checkStore refuses an upload to another store than the server's disk, which is its only one.
func checkStore(q url.Values) error {
	if name := q.Get("store"); name != "" {
		return noStore(name)
	}
	azure, err := rest.BoolParam(q, "use_azure_blob_beta", false)
	if err == nil && azure {
		err = rest.Refuse(http.StatusBadRequest, "This server keeps bundles on its disk, not in Azure Blob Storage.")
	}
	return err
}

// noStore is the refusal of a bundle store (codalab/model/bundle_model.py: get_bundle_store).
func noStore(name string) error {
	return rest.Refuse(http.StatusBadRequest, "Can not find the BundleStore with name %s.", name)
}

// upload stores a bundle's contents: a client's upload, or the results of a run from its
// worker (codalab/rest/bundles.py: _update_bundle_contents_blob).
func (s *Uploads) upload(w http.ResponseWriter, r *http.Request, u store.User) error {
	up, err := parseUpload(r.URL.Query())
	if err != nil {
		return err
	}
	b, err := s.access.Writable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	if b.State.Final() {
		return errFinal(b)
	}
	if !b.State.OnWorker() { // results of a run are not lost for the name of a store
		if err := checkStore(r.URL.Query()); err != nil {
			return err
		}
	}
	if b.State.OnWorker() {
		err = s.receiveResults(r.Context(), w, r, b, up)
	} else {
		err = s.receive(r, b, up, up.finish(b))
	}
	var no *rest.RefusalError
	switch {
	case err == nil:
		rest.Drain(w, r, true) // contents that are not stored
		return nil
	case errors.As(err, &no):
		return err
	}
	// The failure is recorded even if the client has gone.
	return s.uploadFailed(context.WithoutCancel(r.Context()), b, up, err)
}

// errFinal refuses to change the contents of a bundle that has ended. CodaLab's client repeats a
// request that failed, and shows only the last answer, so this answer repeats the reason of the first.
func errFinal(b store.Bundle) error {
	message := "Contents cannot be modified, bundle already finalized."
	if failure := b.Metadata.String("failure_message"); strings.HasPrefix(failure, "Upload failed: ") {
		message += " " + failure
	}
	return rest.Refuse(http.StatusForbidden, "%s", message)
}

// receive stores the contents, if there are any, and changes the bundle's state. It ends early with the client's
// request: nobody waits for the files of an archive any more. Once all contents are on the disk, it goes on without
// the client. finish is called in the transaction that stores them.
func (s *Uploads) receive(r *http.Request, b store.Bundle, up uploadRequest, finish func(*store.Bundle) error) error {
	client := r.Context()
	ctx := context.WithoutCancel(client)
	if up.filename == "" && len(up.urls) == 0 || b.Metadata.String("link_url") != "" {
		b, err := s.store.Change(ctx, b.UUID, finish)
		if err == nil {
			s.changed(b.UUID)
		}
		return err
	}
	return s.storeContents(ctx, b, func(in *store.Upload, room *reservation) error {
		if err := room.expect(up.atLeast); err != nil {
			return err
		}
		if len(up.urls) == 0 {
			return s.storeBody(client, in, r.Body, up, room)
		}
		return s.storeURL(client, in, up, room)
	}, finish)
}

// storeURL stores the contents of a URL.
func (s *Uploads) storeURL(ctx context.Context, in *store.Upload, up uploadRequest, room *reservation) error {
	if len(up.urls) > 1 {
		return badContents("Exactly one url must be provided.")
	}
	u, err := parseURL(up.urls[0])
	if err != nil {
		return err
	}
	if up.git {
		return s.fetcher.storeRepository(ctx, in, u, room)
	}
	fetched, name, err := s.fetcher.fetch(ctx, u)
	if err != nil {
		return err
	}
	up.filename = name
	return errors.Join(s.storeBody(ctx, in, fetched, up, room), fetched.Close())
}

// finish returns the function that changes the state of a bundle at the end of its upload. began is the bundle at the
// begin of the upload: the worker of a run may have lost it since, and the run may have begun again, even on a worker of
// the same id.
func (up uploadRequest) finish(began store.Bundle) func(*store.Bundle) error {
	return func(b *store.Bundle) error {
		state := up.stateOnSuccess
		if !up.finalizeOnSuccess {
			state = ""
		}
		next, ok := stored.Plan(*b).EndUpload(state)
		switch {
		case !ok:
			return errFinal(*b)
		case began.State.OnWorker() && (b.Worker != began.Worker || !b.Assigned.Equal(began.Assigned.Time)):
			return rest.Refuse(http.StatusForbidden, "Contents cannot be stored: the worker that sends them has lost bundle %s since.", b.UUID)
		}
		stored.Become(b, next)
		return nil
	}
}

// storeContents stores the contents that write writes, all of them or nothing, within the quota
// of the bundle's owner. In the same transaction it calls finish, which may refuse them.
func (s *Uploads) storeContents(ctx context.Context, b store.Bundle,
	write func(*store.Upload, *reservation) error, finish func(*store.Bundle) error,
) error {
	c := &incoming{bundle: b, finish: finish}
	defer s.end(ctx, c)
	s.begin(ctx, c)
	s.fill(ctx, c, write)
	if s.flush(ctx, c); c.err == nil {
		s.settle(ctx, c)
	}
	return c.err
}

// uploadFailed returns why an upload failed. It makes the bundle failed if the client wants
// that, or if the client can correct the error. A run does not fail: the worker that has it reports its end, and began tells
// that a worker had it when the upload began.
func (s *Uploads) uploadFailed(ctx context.Context, began store.Bundle, up uploadRequest, cause error) error {
	failures.Log(ctx, s.log, "store contents of bundle "+began.UUID, cause)
	status, message := uploadError(cause)
	message = "Upload failed: " + message
	if !began.State.OnWorker() && (status == http.StatusBadRequest || up.finalizeOnFailure) {
		_, err := stored.Change(ctx, s.store, s.now(), []string{began.UUID}, func(b plan.Bundle) plan.Bundle { return b.FailUpload(message) })
		if err != nil {
			return errors.Join(rest.Refuse(status, "%s", message), err)
		}
		s.changed(began.UUID)
	}
	return rest.Refuse(status, "%s", message)
}
