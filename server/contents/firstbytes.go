package contents

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cl-slurm/cl-slurm/codalab"
	codalabcontents "github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// ErrDirectory means that a path leads to a directory.
var ErrDirectory = errors.New("it is a directory")

// FirstBytes returns the first bytes of a file in a bundle, at most limit. It fails with ErrDirectory,
// fs.ErrNotExist or a refusal.
func (s *Files) FirstBytes(ctx context.Context, u store.User, uuid, path string, limit int64) (data []byte, err error) {
	err = retryMoved(func() error {
		data, err = s.readFirstBytes(ctx, u, uuid, path, limit)
		return err
	})
	return data, err
}

func (s *Files) readFirstBytes(ctx context.Context, u store.User, uuid, path string, limit int64) (data []byte, err error) {
	p, err := s.locate(ctx, u, uuid, path)
	if err != nil {
		return nil, err
	}
	info, err := s.describe(ctx, p, levels{})
	switch {
	case err != nil:
		return nil, err
	case info.Type == codalab.TargetDirectory:
		return nil, ErrDirectory
	case info.Type != codalab.TargetFile:
		return nil, fs.ErrNotExist
	}
	if p.State == codalab.StateRunning {
		return s.firstBytesFromWorker(ctx, p, limit)
	}
	root, at, err := s.openStored(p)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	part, err := codalabcontents.Section(root, at, 0, limit)
	if err != nil {
		return nil, p.refusal(err)
	}
	data, err = io.ReadAll(part)
	return data, errors.Join(err, part.Close())
}

func (s *Files) firstBytesFromWorker(ctx context.Context, p location, limit int64) ([]byte, error) {
	reply, err := s.running.readData(ctx, p, codalab.ReadArgs{Type: codalab.ReadFileSection, Length: limit})
	if err != nil {
		return nil, err
	}
	defer reply.Done()
	zr, err := gzip.NewReader(reply.Data) // always gzip from a worker
	if err != nil {
		return nil, fmt.Errorf("read from worker: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(zr, limit))
	if err != nil {
		return nil, fmt.Errorf("read from worker: %w", err)
	}
	return data, nil
}
