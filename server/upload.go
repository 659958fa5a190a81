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

// maxEntries is the maximum number of files in an upload.
const maxEntries = 20_000_000

// uploadRequest is the query of an upload.
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
		if *f.to, err = boolParam(q, name, f.missing); err != nil {
			return up, err
		}
	}
	if up.finalizeOnSuccess && !up.stateOnSuccess.Final() {
		return up, refuse(http.StatusBadRequest, "state_on_success must be one of ready|failed|killed")
	}
	return up, nil
}

// upload stores a bundle's contents: a client's upload, or the results of a run from its
// worker (codalab/rest/bundles.py: _update_bundle_contents_blob).
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
	// The failure is recorded even if the client has gone.
	ctx := context.WithoutCancel(r.Context())
	err = s.receive(ctx, r.Body, b, up)
	var no *refusal
	if err == nil || errors.As(err, &no) {
		return err
	}
	return s.uploadFailed(ctx, b.UUID, up, err)
}

// receive stores the contents and makes all of them the bundle's, or none.
func (s *Server) receive(ctx context.Context, body io.Reader, b store.Bundle, up uploadRequest) error {
	if up.urls {
		return badContents("this server does not fetch URLs; download the data and upload it")
	}
	var in *store.Upload
	var size int64
	if up.filename != "" && b.Metadata.String("link_url") == "" {
		owner, err := s.Store.User(ctx, b.OwnerID)
		if err != nil {
			return err
		}
		if in, err = s.Store.NewUpload(b.UUID); err != nil {
			return err
		}
		err = storeBody(ctx, in, body, up, max(0, owner.DiskQuota-owner.DiskUsed+b.DataSize))
		if err == nil {
			size, err = in.Flush()
		}
		if err != nil {
			return errors.Join(err, in.Remove())
		}
	}
	replaced := ""
	b, err := s.Store.Change(ctx, b.UUID, func(b *store.Bundle) error {
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
	s.logError(ctx, "remove replaced contents", s.Store.RemoveContents(replaced))
	if in != nil {
		return in.Close()
	}
	return nil
}

// storeBody writes a request's body into the upload. If the client wants it unpacked, an
// archive becomes a directory, and a compressed file is decompressed.
func storeBody(ctx context.Context, in *store.Upload, body io.Reader, up uploadRequest, limit int64) error {
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
		return badContents("this server does not unpack .zip archives; use .tar.gz, or upload it packed")
	case has(".gz"):
		zr, err := gzip.NewReader(body)
		if err != nil {
			return badContents(up.filename + " is not a gzip file")
		}
		return in.File(zr, limit)
	case has(".bz2"):
		return in.File(bzip2.NewReader(body), limit)
	}
	return in.File(body, limit)
}

// contentsError is an upload's error that the client can correct.
type contentsError struct{ message string }

func badContents(message string) error { return &contentsError{message} }

func (e *contentsError) Error() string { return e.message }

// uploadError returns the status and the sentence for a failed upload.
func uploadError(err error) (status int, message string) {
	var wrong *contentsError
	switch {
	case errors.As(err, &wrong):
		return http.StatusBadRequest, wrong.message
	case errors.Is(err, store.ErrTooLarge):
		return http.StatusBadRequest, "the contents exceed the user's disk quota or the limits of one bundle"
	case errors.Is(err, tarstream.ErrUnsafe), errors.Is(err, tarstream.ErrFormat), errors.Is(err, fs.ErrExist):
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInternalServerError, "the server's disk is full"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusInternalServerError, "the connection broke before the upload was complete"
	}
	return http.StatusInternalServerError, "the server could not store the contents (see its log)"
}

// uploadFailed returns why an upload failed. It makes the bundle failed if the client wants
// that, or if the client can correct the error.
func (s *Server) uploadFailed(ctx context.Context, uuid string, up uploadRequest, cause error) error {
	s.logError(ctx, "store contents of bundle "+uuid, cause)
	status, message := uploadError(cause)
	message = "Upload failed: " + message
	if status == http.StatusBadRequest || up.finalizeOnFailure {
		_, err := s.Store.Change(ctx, uuid, func(b *store.Bundle) error {
			if b.State.Final() || b.State.OnWorker() {
				return nil // its worker reports the end of a run
			}
			setFailed(b, message)
			if b.Contents == "" {
				b.SetDataSize(0) // incrementDiskUsed has counted an upload that has failed
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
