package server

import (
	"compress/bzip2"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// maxEntries is how many files one upload may hold.
const maxEntries = 20_000_000

// uploadRequest is what the query of an upload says.
type uploadRequest struct {
	filename          string
	unpack            bool
	finalizeOnSuccess bool
	finalizeOnFailure bool
	stateOnSuccess    codalab.State
	urls              bool
}

func parseUpload(r *http.Request) (uploadRequest, error) {
	q := r.URL.Query()
	up := uploadRequest{filename: q.Get("filename"), stateOnSuccess: codalab.State(q.Get("state_on_success")), urls: q.Get("urls") != ""}
	if up.stateOnSuccess == "" {
		up.stateOnSuccess = codalab.StateReady
	}
	for name, f := range map[string]struct {
		to      *bool
		missing bool
	}{
		"unpack": {&up.unpack, true}, "finalize_on_success": {&up.finalizeOnSuccess, true}, "finalize_on_failure": {&up.finalizeOnFailure, false},
	} {
		var err error
		if *f.to, err = flag(q, name, f.missing); err != nil {
			return up, err
		}
	}
	if up.finalizeOnSuccess && !up.stateOnSuccess.Final() {
		return up, refuse(http.StatusBadRequest, "state_on_success must be one of ready|failed|killed")
	}
	return up, nil
}

// upload takes a bundle's contents: from the client that created it, or the results of a run
// from its worker (codalab/rest/bundles.py: _update_bundle_contents_blob).
func (s *Server) upload(_ http.ResponseWriter, r *http.Request, u store.User) error {
	up, err := parseUpload(r)
	if err != nil {
		return err
	}
	b, err := s.writable(r.Context(), u, r.PathValue("uuid"))
	if err != nil {
		return err
	}
	if b.State.Final() {
		return refuse(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
	}
	// A client that goes away while it sends must not keep us from noting so.
	ctx := context.WithoutCancel(r.Context())
	err = s.receive(ctx, r.Body, b, up)
	var no *refusal
	if err == nil || errors.As(err, &no) {
		return err
	}
	return s.uploadFailed(ctx, b.UUID, up, err)
}

// receive stores the contents and makes them the bundle's, all or nothing.
func (s *Server) receive(ctx context.Context, body io.Reader, b store.Bundle, up uploadRequest) error {
	if up.urls {
		return usage("this server does not fetch from URLs; download the data and upload it")
	}
	var in *store.Upload
	var size int64
	if up.filename != "" && b.Metadata.String("link_url") == "" {
		owner, err := s.store.User(ctx, b.OwnerID)
		if err != nil {
			return err
		}
		if in, err = s.store.NewUpload(b.UUID); err != nil {
			return err
		}
		err = fill(ctx, in, body, up, max(0, owner.DiskQuota-owner.DiskUsed+b.DataSize))
		if err == nil {
			size, err = in.Flush()
		}
		if err != nil {
			return errors.Join(err, in.Remove())
		}
	}
	replaced := ""
	b, err := s.store.Change(ctx, b.UUID, func(b *store.Bundle) error {
		if b.State.Final() {
			return refuse(http.StatusForbidden, "Contents cannot be modified, bundle already finalized.")
		}
		if in != nil {
			replaced, b.Contents = b.Contents, in.Name
			b.SetDataSize(size)
		}
		if up.finalizeOnSuccess {
			b.State = up.stateOnSuccess
		}
		return nil
	})
	if err != nil && in != nil {
		return errors.Join(err, in.Remove())
	}
	if err != nil {
		return err
	}
	s.changed(b.UUID)
	s.logError(ctx, "remove replaced contents", s.store.RemoveContents(replaced))
	if in != nil {
		return in.Close()
	}
	return nil
}

// fill writes what is sent into the upload: an archive's entries as a directory, a compressed
// file uncompressed, if they are to be unpacked; the rest as it is.
func fill(ctx context.Context, in *store.Upload, body io.Reader, up uploadRequest, limit int64) error {
	name, limits := strings.ToLower(up.filename), tarstream.Limits{Bytes: max(limit, 1), Entries: maxEntries}
	has := func(ends ...string) bool {
		for _, end := range ends {
			if strings.HasSuffix(name, end) {
				return up.unpack
			}
		}
		return false
	}
	switch {
	case has(".tar.gz", ".tgz"):
		return in.Archive(ctx, body, limits)
	case has(".tar.bz2"):
		return in.Archive(ctx, bzip2.NewReader(body), limits)
	case has(".zip"):
		return usage("this server does not unpack .zip archives; use .tar.gz, or upload it packed")
	case has(".gz"):
		zr, err := gzip.NewReader(body)
		if err != nil {
			return usage(up.filename + " is not a gzip file")
		}
		return in.File(zr, limit)
	case has(".bz2"):
		return in.File(bzip2.NewReader(body), limit)
	}
	return in.File(body, limit)
}

type usageError struct{ message string }

func usage(message string) error { return &usageError{message} }

func (e *usageError) Error() string { return e.message }

// explain puts the failure of an upload into words.
func explain(err error) (status int, message string) {
	var said *usageError
	switch {
	case errors.As(err, &said):
		return http.StatusBadRequest, said.message
	case errors.Is(err, store.ErrTooLarge):
		return http.StatusBadRequest, "the contents exceed the user's disk quota or the limits of one bundle"
	case errors.Is(err, tarstream.ErrUnsafe), errors.Is(err, tarstream.ErrFormat), errors.Is(err, fs.ErrExist):
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInternalServerError, "the server's disk is full"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusInternalServerError, "the connection was cut before all had been sent"
	}
	return http.StatusInternalServerError, "the server could not store the contents (see its log)"
}

// uploadFailed says why an upload failed, in the bundle too where the client wants that or is
// to blame.
func (s *Server) uploadFailed(ctx context.Context, uuid string, up uploadRequest, cause error) error {
	s.logError(ctx, "store contents of bundle "+uuid, cause)
	status, message := explain(cause)
	message = "Upload failed: " + message
	if status == http.StatusBadRequest || up.finalizeOnFailure {
		_, err := s.store.Change(ctx, uuid, func(b *store.Bundle) error {
			if b.State.Final() || b.State.OnWorker() {
				return nil // a worker reports its run's end itself
			}
			fail(b, message)
			if b.Contents == "" {
				b.SetDataSize(0) // what was counted on its way has not come
			}
			return nil
		})
		if err != nil {
			return errors.Join(refuse(status, "%s", message), err)
		}
		s.changed(uuid)
	}
	return refuse(status, "%s", message)
}
