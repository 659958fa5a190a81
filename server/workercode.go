package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// maxWorkerProgram bounds the program in the archive, which the server keeps compressed in memory.
const maxWorkerProgram = 256 << 20

//go:embed workercode/worker.sh
var workerScript []byte

//go:embed workercode/README
var workerReadme []byte

// workerCode is the archive of cl-worker, made at its first download and again when the program has
// changed. So a download costs no more than its bytes.
type workerCode struct {
	mu      sync.Mutex
	size    int64
	changed time.Time
	archive []byte
	tag     string // the ETag
}

func (s *Server) workerCodeRoutes() []rest.Route {
	const differs = "the archive has cl-slurm's cl-worker; CodaLab 1.7.3 has no such call any more"
	return []rest.Route{
		{Pattern: "GET /workers/code.tar.gz", Serve: s.downloadWorker, Public: true, Worker: true, Differs: differs},
		// its path before August 2016
		{Pattern: "GET /worker/code.tar.gz", Serve: s.downloadWorker, Public: true, Worker: true, Differs: differs},
	}
}

// downloadWorker answers with the program cl-worker in an archive. CodaLab's server had its Python code
// there until 2019 (codalab/rest/workers.py: code, before commit ce7a84556).
func (s *Server) downloadWorker(w http.ResponseWriter, r *http.Request, _ store.User) error {
	archive, tag, err := s.workerCode.current(s.WorkerProgram)
	if errors.Is(err, os.ErrNotExist) {
		return rest.Refuse(http.StatusNotFound, "This server has no cl-worker to hand out. Its operator can name one with cl-server run --worker-program.")
	}
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/gzip")
	h.Set("Content-Disposition", `attachment; filename="code.tar.gz"`)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "max-age=3600")
	h.Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(archive))
	return nil
}

// current returns the archive of a program. It fails with os.ErrNotExist if there is none.
func (c *workerCode) current(program string) (archive []byte, tag string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(program) // of an empty path: os.ErrNotExist
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read the worker's program: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxWorkerProgram:
		return nil, "", fmt.Errorf("read the worker's program: %s is not a file of at most %d bytes", program, maxWorkerProgram)
	case c.archive != nil && info.Size() == c.size && info.ModTime().Equal(c.changed):
		return c.archive, c.tag, nil
	}
	file, err := os.Open(program)
	if err != nil {
		return nil, "", fmt.Errorf("read the worker's program: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(file, maxWorkerProgram))
	if err != nil {
		return nil, "", fmt.Errorf("read the worker's program: %w", err)
	}
	if archive, err = packWorker(data); err != nil {
		return nil, "", fmt.Errorf("pack the worker's program: %w", err)
	}
	sum := sha256.Sum256(archive)
	c.archive, c.tag, c.size, c.changed = archive, `"`+hex.EncodeToString(sum[:])+`"`, info.Size(), info.ModTime()
	return c.archive, c.tag, nil
}

// packWorker makes the archive. Its bytes depend on the program alone.
func packWorker(program []byte) ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for _, one := range []struct {
		name string
		mode int64
		data []byte
	}{{"README", 0o644, workerReadme}, {"cl-worker", 0o755, program}, {"worker.sh", 0o755, workerScript}} {
		header := &tar.Header{Name: one.name, Mode: one.mode, Size: int64(len(one.data)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if err := files.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := files.Write(one.data); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
