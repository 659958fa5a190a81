package contents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// Status is the HTTP status of an error of this package, with its sentence.
func Status(target codalab.Target, err error) (code int, message string) {
	switch {
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound, fmt.Sprintf("Path '%s' in bundle %s not found", target.Subpath, target.BundleUUID)
	case errors.Is(err, ErrLink):
		return http.StatusForbidden, fmt.Sprintf("Path '%s' in bundle %s is a link that leads out of the bundle", target.Subpath, target.BundleUUID)
	case errors.Is(err, ErrDirectory):
		return http.StatusBadRequest, fmt.Sprintf("Path '%s' in bundle %s is a directory", target.Subpath, target.BundleUUID)
	case errors.Is(err, ErrTooMany):
		return http.StatusBadRequest, fmt.Sprintf("Path '%s' in bundle %s holds more than %d entries; download it instead", target.Subpath, target.BundleUUID, maxEntries)
	case errors.Is(err, ErrSummary), errors.Is(err, ErrReadType):
		return http.StatusBadRequest, err.Error()
	case errors.Is(err, fs.ErrPermission):
		return http.StatusForbidden, fmt.Sprintf("Path '%s' in bundle %s may not be read", target.Subpath, target.BundleUUID)
	}
	return http.StatusInternalServerError, fmt.Sprintf("Path '%s' in bundle %s cannot be read: %v", target.Subpath, target.BundleUUID, err)
}

// Reply replies to one read message about a running bundle whose directory is root. It returns
// the stream to send as the reply's data, which the caller reads and closes, or, if there
// is none, the reply itself: a description or an error message. The bundle sees its parents
// at the paths in dependencies: Reply leaves them out of listings and does not find them,
// so that the server looks for them in the parents. The stream ends early with ctx
// (codalab/worker/reader.py: Reader.read).
func Reply(ctx context.Context, root *os.Root, target codalab.Target, args codalab.ReadArgs, dependencies []string) (codalab.ReadReply, io.ReadCloser) {
	hidden := hiddenPaths(dependencies)
	if hidden[clean(target.Subpath)] {
		// CodaLab's own worker answers with the same words.
		return codalab.ReadReply{ErrorCode: http.StatusNotFound, ErrorMessage: fmt.Sprintf("%s not found in bundle %s", target.Subpath, target.BundleUUID)}, nil
	}
	info, stream, err := answer(ctx, root, target, args, hidden)
	if err != nil {
		code, message := Status(target, err)
		return codalab.ReadReply{ErrorCode: code, ErrorMessage: message}, nil
	}
	return codalab.ReadReply{TargetInfo: info}, stream
}

// hiddenPaths returns the paths below root that are hidden. A dependency at "." hides
// nothing: its entries cannot be distinguished from the bundle's own. A dependency with an
// absolute path hides nothing, because it is not in the bundle's directory.
func hiddenPaths(dependencies []string) map[string]bool {
	set := map[string]bool{}
	for _, p := range dependencies {
		if at := clean(p); at != "." && !path.IsAbs(p) {
			set[at] = true
		}
	}
	return set
}

func isHidden(hidden map[string]bool, p string) bool {
	for ; p != "."; p = path.Dir(p) {
		if hidden[p] {
			return true
		}
	}
	return false
}

func answer(ctx context.Context, root *os.Root, target codalab.Target, args codalab.ReadArgs, hidden map[string]bool) (*codalab.TargetInfo, io.ReadCloser, error) {
	p := clean(target.Subpath)
	if isHidden(hidden, p) {
		return nil, nil, ErrNotFound
	}
	switch args.Type {
	case codalab.ReadTargetInfo:
		var info codalab.TargetInfo
		var err error
		if args.First > 0 {
			info, err = InfoPage(root, p, Page{args.First, args.After})
		} else {
			info, err = Info(root, p, args.Depth)
		}
		info = dropHidden(info, p, hidden)
		info.Resolved = &target
		if p == "." {
			info.Name = target.BundleUUID
		}
		return &info, nil, err
	case codalab.ReadFile:
		return fileStream(root, p, 0, -1)
	case codalab.ReadFileSection:
		return fileStream(root, p, args.Offset, args.Length)
	case codalab.ReadSummary:
		text, err := Summarize(root, p, args)
		if err != nil {
			return nil, nil, err
		}
		return nil, Gzip(io.NopCloser(bytes.NewReader(text))), nil
	case codalab.ReadDirectory:
		stream, err := Archive(ctx, root, p, func(below string) bool { return isHidden(hidden, path.Join(p, below)) })
		return nil, stream, err
	}
	return nil, nil, fmt.Errorf("%w %q", ErrReadType, args.Type)
}

// dropHidden leaves hidden paths out of a description.
func dropHidden(info codalab.TargetInfo, p string, hidden map[string]bool) codalab.TargetInfo {
	if info.Contents == nil || len(hidden) == 0 {
		return info
	}
	entries := []codalab.TargetInfo{}
	for _, e := range info.Contents {
		if at := path.Join(p, e.Name); !hidden[at] {
			entries = append(entries, dropHidden(e, at, hidden))
		}
	}
	info.Contents = entries
	return info
}

func fileStream(root *os.Root, p string, offset, length int64) (*codalab.TargetInfo, io.ReadCloser, error) {
	f, err := Section(root, p, offset, length)
	if err != nil {
		return nil, nil, err
	}
	return nil, Gzip(f), nil
}

// Gzip returns r's bytes, gzipped. Closing it closes r.
func Gzip(r io.ReadCloser) io.ReadCloser {
	return piped(func(w io.Writer) error {
		zw, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return errors.Join(err, r.Close())
		}
		_, err = io.Copy(zw, r)
		if err == nil { // else the stream is not whole
			err = zw.Close()
		}
		return errors.Join(err, r.Close())
	})
}

// Archive returns the directory at p as a gzipped tar stream, without the
// paths below it that exclude names (it may be nil). The caller closes it. It fails at once
// if the target is no directory.
func Archive(ctx context.Context, root *os.Root, p string, exclude func(below string) bool) (io.ReadCloser, error) {
	p = clean(p)
	info, err := root.Lstat(p)
	if err != nil {
		return nil, classify(root, p, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%w: not a directory", ErrNotFound)
	}
	return piped(func(w io.Writer) error {
		return tarstream.Pack(ctx, w, root, p, tarstream.PackOptions{
			Exclude: func(below string, _ fs.DirEntry) bool { return exclude != nil && exclude(below) },
			Skipped: func(string, error) {}, // a running bundle may close its own files
		})
	}), nil
}

// piped returns a reader of the bytes that write writes.
func piped(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	background.Detach(func() { // returns with write, which fails once the reader is closed
		w.CloseWithError(write(w)) // nil is the end of the stream
	})
	return r
}
