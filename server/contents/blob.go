package contents

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	codalabcontents "github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// contentsBlob sends a target: a directory as a gzipped tar archive; a file, or a part of it,
// gzipped if the client accepts that. The status is 200 even for a part
// (codalab/rest/bundles.py: _fetch_bundle_contents_blob).
func (s *Files) contentsBlob(w http.ResponseWriter, r *http.Request, u store.User) error {
	part, err := requestedPart(r)
	if err != nil {
		return err
	}
	return retryMoved(func() error {
		p, err := s.locate(r.Context(), u, r.PathValue("uuid"), r.PathValue("path"))
		if err != nil {
			return err
		}
		info, err := s.describe(r.Context(), p, levels{})
		if err != nil {
			return err
		}
		args := part
		switch info.Type {
		case codalab.TargetDirectory:
			if part.Type != codalab.ReadFile {
				return rest.Refuse(http.StatusBadRequest, "%s", map[codalab.ReadType]string{
					codalab.ReadFileSection: "Range not supported for directory blobs.",
					codalab.ReadSummary:     "Head and tail not supported for directory blobs.",
				}[part.Type])
			}
			args.Type = codalab.ReadDirectory
		case codalab.TargetFile:
		case codalab.TargetLink:
			return rest.Refuse(http.StatusForbidden, "Cannot download files of this type (%s).", info.Type)
		}
		b := blob{location: p, info: info, args: args, whole: r.PathValue("path") == "", gzipped: acceptsGzip(r)}
		if p.State == codalab.StateRunning {
			return s.sendFromWorker(w, r, b)
		}
		return s.sendStored(w, r, b)
	})
}

// blob is a target to send.
type blob struct {
	location
	info    codalab.TargetInfo
	args    codalab.ReadArgs
	whole   bool // the request names the bundle, not a path in it
	gzipped bool // the client accepts gzip
}

// requestedPart returns which part of a file a request asks for.
func requestedPart(r *http.Request) (codalab.ReadArgs, error) {
	args, q := codalab.ReadArgs{Type: codalab.ReadFile, MaxLineLength: 128, TruncationText: r.URL.Query().Get("truncation_text")}, r.URL.Query()
	for name, to := range map[string]*int{"head": &args.HeadLines, "tail": &args.TailLines, "max_line_length": &args.MaxLineLength} {
		if err := rest.IntParam(q, name, to); err != nil {
			return args, err
		}
	}
	lines := args.HeadLines > 0 || args.TailLines > 0
	if lines {
		args.Type = codalab.ReadSummary
	}
	header := r.Header.Get("Range")
	if header == "" {
		return args, nil
	}
	if lines {
		return args, rest.Refuse(http.StatusBadRequest, "Head and range not supported on the same request.")
	}
	first, last, ok := parseRange(header)
	if !ok {
		return args, rest.Refuse(http.StatusBadRequest, "Range must be 'bytes=START-END'.")
	}
	args.Type, args.Offset, args.Length = codalab.ReadFileSection, first, max(0, last-first+1)
	return args, nil
}

// parseRange reads a Range header: the first byte and the last one.
func parseRange(header string) (first, last int64, ok bool) {
	rangeForm := regexp.MustCompile(`^bytes=([0-9]{1,18})-([0-9]{1,18})$`)
	m := rangeForm.FindStringSubmatch(strings.TrimSpace(header))
	if m == nil {
		return 0, 0, false
	}
	first, err := strconv.ParseInt(m[1], 10, 64)
	last, lastErr := strconv.ParseInt(m[2], 10, 64)
	return first, last, err == nil && lastErr == nil
}

// acceptsGzip reports whether a client accepts gzip, with a weight above 0 (RFC 9110, section 12.4.2).
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, weighted := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ToLower(strings.ReplaceAll(weight, " ", "")), "q="), 64)
			return !weighted || err == nil && q > 0
		}
	}
	return false
}

// setHeaders sets the headers that CodaLab's own server sets.
func (b blob) setHeaders(h http.Header) {
	name := b.info.Name
	if b.whole && b.Metadata.String("name") != "" {
		name = b.Metadata.String("name")
	}
	size, kind, disposition, coding := b.info.Size, contentType(name), "inline", "identity"
	if b.gzipped {
		coding = "gzip"
	}
	if b.info.Type == codalab.TargetDirectory {
		size, kind, disposition, coding = 0, "application/gzip", "attachment", "identity"
		name += ".tar.gz"
		if b.whole {
			size = b.DataSize
		}
	}
	h.Set("Content-Type", kind)
	h.Set("Content-Encoding", coding)
	h.Add("Vary", "Accept-Encoding") // caches keep each coding apart
	h.Set("Content-Disposition", disposition+`; filename="`+strings.NewReplacer(`"`, "_", `\`, "_", "\r", "_", "\n", "_").Replace(name)+`"`)
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Target-Type", string(b.info.Type))
	h.Set("X-Codalab-Target-Size", strconv.FormatInt(size, 10))
	guardBrowser(h)
}

func contentType(name string) string {
	kind := mime.TypeByExtension(path.Ext(name))
	switch {
	case kind == "":
		return "text/plain"
	case strings.HasSuffix(kind, "gzip"), strings.HasSuffix(kind, "bzip2"): // which clients would take for an encoding
		return "application/octet-stream"
	}
	kind, _, _ = strings.Cut(kind, ";")
	return kind
}

// sendStored sends a target from the store or a link.
func (s *Files) sendStored(w http.ResponseWriter, r *http.Request, b blob) error {
	root, at, err := s.openStored(b.location)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	stream, err := b.open(r, root, at)
	if err != nil {
		return b.refusal(err)
	}
	// Also when copyStream panics, since a goroutine may be writing to the stream.
	defer func() { failures.Log(r.Context(), s.log, "close "+r.URL.Path, stream.Close()) }()
	b.setHeaders(w.Header())
	copyStream(w, stream)
	return nil
}

// open opens a target, which is at the path at in root, in the form in which it is sent.
func (b blob) open(r *http.Request, root *os.Root, at string) (stream io.ReadCloser, err error) {
	switch b.args.Type {
	case codalab.ReadDirectory:
		return codalabcontents.Archive(r.Context(), root, at, nil)
	case codalab.ReadSummary:
		text, err := codalabcontents.Summarize(root, at, b.args)
		if err != nil {
			return nil, err
		}
		stream = io.NopCloser(bytes.NewReader(text))
	case codalab.ReadFileSection:
		stream, err = codalabcontents.Section(root, at, b.args.Offset, b.args.Length)
	case codalab.ReadFile, codalab.ReadTargetInfo:
		stream, err = codalabcontents.Section(root, at, 0, -1)
	}
	if err != nil || !b.gzipped {
		return stream, err
	}
	return codalabcontents.Gzip(stream), nil
}

// sendFromWorker sends a target that the bundle's worker reads.
func (s *Files) sendFromWorker(w http.ResponseWriter, r *http.Request, b blob) error {
	reply, err := s.running.readData(r.Context(), b.location, b.args)
	if err != nil {
		return err
	}
	defer reply.Done()
	data := reply.Data // always gzip from a worker
	if !b.gzipped && b.info.Type != codalab.TargetDirectory {
		zr, err := gzip.NewReader(data)
		if err != nil {
			return rest.Refuse(http.StatusBadGateway, "The worker that runs bundle %s sent broken data", b.UUID)
		}
		data = zr
	}
	b.setHeaders(w.Header())
	copyStream(w, data)
	return nil
}

// copyStream sends a stream to its end. If the stream breaks off, copyStream breaks the
// connection, so that the client does not take a part for the whole.
func copyStream(w http.ResponseWriter, r io.Reader) {
	if _, err := io.Copy(w, r); err != nil {
		panic(http.ErrAbortHandler)
	}
}
