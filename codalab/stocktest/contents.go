package stocktest

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"

	"github.com/klauspost/compress/gzip"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// describe describes a target of a bundle. Any error means that the target is not found
// (codalab/lib/download_manager.py: get_target_info).
func (s *Server) describe(t codalab.Target, depth int) (codalab.TargetInfo, error) {
	return retryIfEnded(func() (codalab.TargetInfo, error) {
		info, err := s.describeOnce(t, depth)
		if err != nil {
			return info, refuse(http.StatusNotFound, "%v", err)
		}
		return info, nil
	})
}

func (s *Server) describeOnce(t codalab.Target, depth int) (codalab.TargetInfo, error) {
	switch state, w := s.state(t.BundleUUID); state {
	case codalab.StatePreparing:
		return codalab.TargetInfo{}, fmt.Errorf("Bundle %s hasn't started running yet, files not available", t.BundleUUID)
	case codalab.StateRunning:
		return s.describeRunning(w, t, depth)
	default: // in other states the contents are stored here
		info, err := contents.Info(s.store, storePath(t), depth)
		if err != nil {
			return info, fmt.Errorf("Path '%s' in bundle %s not found", t.Subpath, t.BundleUUID)
		}
		info.Resolved = &t
		return info, nil
	}
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

// storePath is a target's path in the store, always within its bundle.
func storePath(t codalab.Target) string { return path.Join(t.BundleUUID, path.Clean("/"+t.Subpath)) }

// readable returns the target of a request, or fails if the user may not read it.
func (s *Server) readable(r *http.Request, u *account) (codalab.Target, error) {
	t := codalab.Target{BundleUUID: r.PathValue("uuid"), Subpath: r.PathValue("path")}
	return t, s.permit(u, t.BundleUUID, "read")
}

// info is codalab/rest/bundles.py: _fetch_bundle_contents_info.
func (s *Server) info(w http.ResponseWriter, r *http.Request, u *account) error {
	t, err := s.readable(r, u)
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
	t, err := s.readable(r, u)
	if err != nil {
		return err
	}
	info, err := s.describe(t, 0)
	if err != nil {
		return err
	}
	args, err := readArgs(r, info.Type)
	if err != nil {
		return err
	}
	stream, err := retryIfEnded(func() (io.ReadCloser, error) { return s.open(t, args) })
	if err != nil {
		return err
	}
	defer stream.Close()
	return sendBlob(w, stream, info)
}

// readArgs returns which part of a target a request asks for.
func readArgs(r *http.Request, kind codalab.TargetType) (codalab.ReadArgs, error) {
	query, section := r.URL.Query(), r.Header.Get("Range")
	head, _ := strconv.Atoi(query.Get("head")) // 0 for none
	tail, _ := strconv.Atoi(query.Get("tail"))
	switch {
	case kind == codalab.TargetDirectory && section != "":
		return codalab.ReadArgs{}, refuse(http.StatusBadRequest, "Range not supported for directory blobs.")
	case kind == codalab.TargetDirectory:
		return codalab.ReadArgs{Type: codalab.ReadDirectory}, nil
	case section != "":
		var first, last int64
		if n, err := fmt.Sscanf(section, "bytes=%d-%d", &first, &last); n != 2 || err != nil {
			return codalab.ReadArgs{}, refuse(http.StatusBadRequest, "Range must be 'bytes=START-END'.")
		}
		return codalab.ReadArgs{Type: codalab.ReadFileSection, Offset: first, Length: last - first + 1}, nil
	case head+tail > 0:
		return codalab.ReadArgs{
			Type: codalab.ReadSummary, HeadLines: head, TailLines: tail, MaxLineLength: 128, TruncationText: query.Get("truncation_text"),
		}, nil
	}
	return codalab.ReadArgs{Type: codalab.ReadFile}, nil
}

// open opens a part of a target, gzipped. While the bundle runs, its worker sends the part. Of
// stored contents the stand-in has files and their sections.
func (s *Server) open(t codalab.Target, args codalab.ReadArgs) (io.ReadCloser, error) {
	if state, w := s.state(t.BundleUUID); state == codalab.StateRunning {
		return s.fetch(w, func(id int64) any { return readMessage(id, t, args) })
	}
	length := int64(-1) // the whole file
	switch args.Type {
	case codalab.ReadFileSection:
		length = args.Length
	case codalab.ReadFile:
	case codalab.ReadDirectory, codalab.ReadSummary, codalab.ReadTargetInfo:
		return nil, fmt.Errorf("the stand-in has no %s of stored contents", args.Type)
	}
	f, err := contents.Section(s.store, storePath(t), args.Offset, length)
	if err != nil {
		return nil, err
	}
	return contents.Gzip(f), nil
}

// sendBlob sends a gzipped stream: a directory as it is, a file unzipped.
func sendBlob(w http.ResponseWriter, stream io.Reader, info codalab.TargetInfo) error {
	header := w.Header()
	header.Set("Target-Type", string(info.Type))
	header.Set("X-Codalab-Target-Size", strconv.FormatInt(info.Size, 10))
	header.Set("Content-Encoding", "identity")
	header.Set("Content-Type", "application/gzip")
	if info.Type != codalab.TargetDirectory {
		header.Set("Content-Type", "text/plain")
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
