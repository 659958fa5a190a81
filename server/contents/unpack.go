package contents

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

	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/turns"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// maxEntries is the maximum number of files in an upload.
const maxEntries = 20_000_000

// packing is a way in which a file is packed.
type packing string

// The packings that CodaLab knows by the ends of names, in the order in which it looks for them,
// and none (codalab/lib/zip_util.py: ARCHIVE_EXTS).
const (
	packedTarGzip  packing = ".tar.gz"
	packedTgz      packing = ".tgz"
	packedTarBzip2 packing = ".tar.bz2"
	packedZip      packing = ".zip"
	packedGzip     packing = ".gz"
	packedBzip2    packing = ".bz2"
	unpacked       packing = ""
)

// packingOf returns the packing that a file's name says. Like CodaLab's own server, it does not
// recognize names in capitals.
func packingOf(name string) packing {
	for _, p := range []packing{packedTarGzip, packedTgz, packedTarBzip2, packedZip, packedGzip, packedBzip2} {
		if strings.HasSuffix(name, string(p)) {
			return p
		}
	}
	return unpacked
}

// storeBody writes a stream into the upload. If the client wants it unpacked, an archive becomes a
// directory, and a compressed file is decompressed. All entries of an archive are kept, with the
// paths that they have (codalab/lib/zip_util.py: unpack).
func (s *Uploads) storeBody(ctx context.Context, in *store.Upload, body io.Reader, up uploadRequest, room *reservation) error {
	body = sourceReader{body}
	limits, kind := room.limits(), unpacked
	if up.unpack {
		kind = packingOf(up.filename)
	}
	switch kind {
	case packedTarGzip, packedTgz:
		return in.Archive(ctx, body, limits)
	case packedTarBzip2:
		return in.Archive(ctx, bzip2.NewReader(body), limits)
	case packedZip:
		return s.storeZip(ctx, in, body, limits, room)
	case packedGzip, packedBzip2, unpacked:
	}
	return storeFile(in, body, kind, room)
}

// storeFile stores a file, and decompresses it first if it is packed.
func storeFile(in *store.Upload, body io.Reader, kind packing, room *reservation) error {
	if err := room.takeEntry(); err != nil {
		return err
	}
	switch kind {
	case packedGzip:
		zr, err := gzip.NewReader(body)
		if err != nil {
			return packedError(err)
		}
		return packedError(in.File(room.reader(zr)))
	case packedBzip2:
		return packedError(in.File(room.reader(bzip2.NewReader(body))))
	default: // the caller unpacks archives
		return in.File(room.reader(body))
	}
}

// storeZip unpacks a zip archive. The archive and its files are on the disk at the same time. The larger of
// the two counts against the quota.
func (s *Uploads) storeZip(ctx context.Context, in *store.Upload, body io.Reader, limits tarstream.Limits, room *reservation) error {
	leave := func() {}
	defer func() { leave() }()
	return in.Zip(ctx, room.reader(body), limits, func() error {
		room.rewind()
		granted, err := s.zips.Take(ctx, turns.Party{Owner: room.ownerID})
		if err == nil {
			leave = granted
		}
		return err
	})
}

// sourceReader marks the errors of the reader from which contents come, to distinguish them from
// those of bad contents.
type sourceReader struct{ r io.Reader }

type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

func (s sourceReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && err != io.EOF {
		err = sourceError{err}
	}
	return n, err
}

// packedError is an error of reading a packed file: one of the client's, unless its source, the
// quota or the disk caused it.
func packedError(err error) error {
	var source sourceError
	var disk *fs.PathError
	if err == nil || errors.As(err, &source) || errors.As(err, &disk) || errors.Is(err, store.ErrTooLarge) {
		return err
	}
	return badContents("not a whole packed file: " + err.Error())
}

// contentsError is an upload's error that the client can correct.
type contentsError struct{ message string }

func badContents(message string) error { return &contentsError{message} }

func (e *contentsError) Error() string { return e.message }

// uploadError returns the status and the sentence for a failed upload.
func uploadError(err error) (status int, message string) {
	var wrong *contentsError
	var quota *quotaError
	var source sourceError
	var bzip2Error bzip2.StructuralError
	switch {
	case errors.Is(err, sqldb.ErrUnavailable), errors.Is(err, sqldb.ErrInDoubt): // before io.ErrUnexpectedEOF, which they may wrap
		return http.StatusServiceUnavailable, "the server's database does not answer"
	case errors.As(err, &wrong):
		return http.StatusBadRequest, wrong.message
	case errors.As(err, &quota):
		return http.StatusBadRequest, quota.Error()
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, sqldb.ErrFull):
		return http.StatusInternalServerError, "the server's disk is full"
	case errors.As(err, &source) && rest.TooSlow(err):
		return http.StatusInternalServerError, "the contents came too slowly"
	case errors.As(err, &source), errors.Is(err, context.Canceled):
		return http.StatusInternalServerError, "the connection broke before the upload was complete"
	case errors.Is(err, tarstream.ErrUnsafe), errors.Is(err, tarstream.ErrFormat), errors.Is(err, tarstream.ErrTooLarge), errors.Is(err, fs.ErrExist):
		return http.StatusBadRequest, "Invalid archive upload: " + err.Error()
	case errors.As(err, &bzip2Error), errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusBadRequest, "Invalid archive upload: not a whole archive: " + err.Error()
	}
	return http.StatusInternalServerError, "the server could not store the contents (see its log)"
}
