package stocktest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/contents"
)

// describe describes a target, which may lie in a dependency
// (codalab/lib/download_manager.py: get_target_info).
func (s *Server) describe(t codalab.Target, depth int) (codalab.TargetInfo, error) {
	return once(func() (codalab.TargetInfo, error) {
		info, err := s.describeWithin(t, depth)
		if err == nil {
			return info, nil
		}
		var r refusal
		if errors.As(err, &r) && r.status == http.StatusNotFound {
			if parent, ok := s.inDependency(t); ok {
				return s.describe(parent, depth)
			}
		}
		return info, refuse(http.StatusNotFound, "%v", err)
	})
}

// inDependency is the target in a parent that a path of its child leads to.
func (s *Server) inDependency(t codalab.Target) (codalab.Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, rest, _ := strings.Cut(t.Subpath, "/")
	if b := s.bundle(t.BundleUUID); b != nil {
		for _, d := range b.dependencies {
			if d.ChildPath == key {
				return codalab.Target{BundleUUID: d.ParentUUID, Subpath: path.Join(d.ParentPath, rest)}, true
			}
		}
	}
	return t, false
}

// state is a bundle's state, and the worker that has it.
func (s *Server) state(uuid string) (codalab.State, *workerRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bundle(uuid)
	if b == nil {
		return "", nil
	}
	return b.state, s.runs[uuid]
}

func (s *Server) describeWithin(t codalab.Target, depth int) (codalab.TargetInfo, error) {
	switch state, w := s.state(t.BundleUUID); state { //nolint:exhaustive // the others' contents are here
	case codalab.StatePreparing:
		return codalab.TargetInfo{}, refuse(http.StatusNotFound, "Bundle %s hasn't started running yet, files not available", t.BundleUUID)
	case codalab.StateRunning:
		return s.describeRunning(w, t, depth)
	default:
		info, err := contents.Info(s.store, place(t), depth)
		if err != nil {
			return info, refuse(http.StatusNotFound, "Path '%s' in bundle %s not found", t.Subpath, t.BundleUUID)
		}
		info.Resolved = &t
		return info, nil
	}
}

// place is where a target lies in the store; a path does not lead out of its
// bundle.
func place(t codalab.Target) string { return path.Join(t.BundleUUID, path.Clean("/"+t.Subpath)) }

// info is codalab/rest/bundles.py: _fetch_bundle_contents_info.
func (s *Server) info(w http.ResponseWriter, r *http.Request, u *account) error {
	t := codalab.Target{BundleUUID: r.PathValue("uuid"), Subpath: r.PathValue("path")}
	s.mu.Lock()
	_, err := s.allowed(u, t.BundleUUID, mayRead)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	depth, _ := strconv.Atoi(r.URL.Query().Get("depth")) // 0 for none
	info, err := s.describe(t, depth)
	if err != nil {
		return err
	}
	return answerJSON(w, map[string]any{"data": info, "meta": version()})
}

// blob is codalab/rest/bundles.py: _fetch_bundle_contents_blob.
func (s *Server) blob(w http.ResponseWriter, r *http.Request, u *account) error {
	t := codalab.Target{BundleUUID: r.PathValue("uuid"), Subpath: r.PathValue("path")}
	whole := t.Subpath == ""
	s.mu.Lock()
	_, err := s.allowed(u, t.BundleUUID, mayRead)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	info, err := s.describe(t, 0)
	if err != nil {
		return err
	}
	if info.Resolved != nil {
		t = *info.Resolved
	}
	s.mu.Lock()
	b, err := s.allowed(u, t.BundleUUID, mayRead)
	size, name := info.Size, info.Name
	if err == nil && whole {
		name = b.metadata.String("name")
	}
	if err == nil && info.Type == codalab.TargetDirectory {
		if size = 0; whole {
			size = b.metadata.Int("data_size")
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	args, err := readArgs(r, info.Type)
	if err != nil {
		return err
	}
	stream, err := once(func() (io.ReadCloser, error) { return s.open(r, t, args) })
	if err != nil {
		return err
	}
	defer stream.Close() //nolint:errcheck // it was read as far as anybody wants
	return sendBlob(w, r, stream, blobHeader{info.Type, name, size})
}

// readArgs is what a request wants of a target.
func readArgs(r *http.Request, kind codalab.TargetType) (codalab.ReadArgs, error) {
	query := r.URL.Query()
	head, _ := strconv.Atoi(query.Get("head")) // 0 for none
	tail, _ := strconv.Atoi(query.Get("tail"))
	section := r.Header.Get("Range")
	var none codalab.ReadArgs
	switch {
	case kind == codalab.TargetLink:
		return none, refuse(http.StatusForbidden, "Cannot download files of this type (%s).", kind)
	case kind == codalab.TargetDirectory && section != "":
		return none, refuse(http.StatusBadRequest, "Range not supported for directory blobs.")
	case kind == codalab.TargetDirectory && head+tail > 0:
		return none, refuse(http.StatusBadRequest, "Head and tail not supported for directory blobs.")
	case kind == codalab.TargetDirectory:
		return codalab.ReadArgs{Type: codalab.ReadDirectory}, nil
	case section != "":
		var first, last int64
		if n, err := fmt.Sscanf(section, "bytes=%d-%d", &first, &last); n != 2 || err != nil {
			return none, refuse(http.StatusBadRequest, "Range must be 'bytes=START-END'.")
		}
		return codalab.ReadArgs{Type: codalab.ReadFileSection, Offset: first, Length: last - first + 1}, nil
	case head+tail > 0:
		return codalab.ReadArgs{
			Type: codalab.ReadSummary, HeadLines: head, TailLines: tail, MaxLineLength: 128, TruncationText: query.Get("truncation_text"),
		}, nil
	}
	return codalab.ReadArgs{Type: codalab.ReadFile}, nil
}

// open opens what was asked for, gzipped: at its worker while the bundle runs.
func (s *Server) open(r *http.Request, t codalab.Target, args codalab.ReadArgs) (io.ReadCloser, error) {
	state, w := s.state(t.BundleUUID)
	if state == codalab.StateRunning {
		return s.fetch(w, func(id int64) any { return readMessage(id, t, args) })
	}
	at := place(t)
	var f io.ReadCloser
	var err error
	switch args.Type {
	case codalab.ReadDirectory:
		return contents.Archive(r.Context(), s.store, at, nil)
	case codalab.ReadFileSection:
		f, err = contents.Section(s.store, at, args.Offset, args.Length)
	case codalab.ReadSummary:
		var text []byte
		text, err = contents.Summarize(s.store, at, args)
		f = io.NopCloser(bytes.NewReader(text))
	case codalab.ReadFile, codalab.ReadTargetInfo:
		f, err = contents.Section(s.store, at, 0, -1)
	}
	if err != nil {
		return nil, err
	}
	return contents.Gzip(f), nil
}

type blobHeader struct {
	kind codalab.TargetType
	name string
	size int64
}

// sendBlob sends a gzipped stream, unzipped where the client does not take it
// so.
func sendBlob(w http.ResponseWriter, r *http.Request, stream io.Reader, h blobHeader) error {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Target-Type", string(h.kind))
	header.Set("X-Codalab-Target-Size", strconv.FormatInt(h.size, 10))
	header.Set("Content-Encoding", "identity")
	switch {
	case h.kind == codalab.TargetDirectory:
		header.Set("Content-Type", "application/gzip")
		header.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", h.name+".tar.gz"))
	case strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		header.Set("Content-Type", "text/plain")
		header.Set("Content-Encoding", "gzip")
	default:
		header.Set("Content-Type", "text/plain")
		header.Set("Content-Disposition", fmt.Sprintf("inline; filename=%q", h.name))
		plain, err := gzip.NewReader(stream)
		if err != nil {
			return fmt.Errorf("decompress the answer: %w", err)
		}
		stream = plain
	}
	if _, err := io.Copy(w, stream); err != nil {
		panic(http.ErrAbortHandler) // the answer has begun, and is broken off
	}
	return nil
}
