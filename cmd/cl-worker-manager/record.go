package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/slurmbatch"
)

// record is the file that a manager writes to its work directory for cl-worker-manager status.
type record struct {
	Server       string      `json:"server"`
	PasswordFile string      `json:"password_file"`
	TokenFile    string      `json:"token_file,omitempty"`
	Everybody    bool        `json:"everybody"`
	Search       []string    `json:"search"`
	Shape        pilot.Shape `json:"shape"`
	// Min and Max are the bounds on the number of workers.
	Min int `json:"min_workers"`
	Max int `json:"max_workers"`
}

// rootUser is the user who sees the bundles of all users (worker_manager.py: run_one_iteration).
const rootUser = "codalab"

func (s *slurmBatch) record(server string, l *login) record {
	j := s.job
	return record{
		Server: server, PasswordFile: l.file, TokenFile: absolute(s.login.token), Everybody: l.User == rootUser, Search: s.search.List, Min: s.min, Max: s.max,
		Shape: pilot.Shape{
			CPUs: j.CPUs, GPUs: j.GPUs, Memory: j.MemoryMB << 20, Longest: slurmbatch.Longest(j.Time),
			Tag: s.worker.tag, Exclusive: s.worker.tagExclusive, Runs: s.worker.exitAfterRuns,
		},
	}
}

// manager returns a manager that starts no pilots.
func (r record) manager(api *client.Client, b pilot.Backend, now func() time.Time) *pilot.Manager {
	return &pilot.Manager{
		Server: api, Backend: b, Shape: r.Shape, Search: r.Search, Everybody: r.Everybody,
		Log: slog.New(slog.DiscardHandler), MostFailed: -1, Now: now,
	}
}

func recordPath(b *slurmbatch.Backend) string { return filepath.Join(b.WorkDir, b.JobName+".json") }

func (r record) save(b *slurmbatch.Backend) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the manager's record: %w", err)
	}
	return atomicfile.Write(recordPath(b), append(data, '\n'), 0o600)
}

// absolute returns the absolute path of a file; empty for none.
func absolute(path string) string {
	if full, err := filepath.Abs(path); path != "" && err == nil {
		return full
	}
	return path
}

// slurmFinder finds the workers of slurm-batch.
type slurmFinder struct {
	*manager
	location
}

func (f *slurmFinder) openFound(context.Context) (pilot.Backend, error) {
	return f.openBackend(f.Process, f.slurm(nil))
}

// settings returns those that the last manager has recorded in the work directory.
func (*slurmFinder) command() string { return "cl-worker-manager" }

func (f *slurmFinder) settings(server string) (s settings, err error) {
	b, err := f.openBackend(f.Process, nil)
	if err != nil {
		return s, err
	}
	s.login, s.workDir = f.login, b.WorkDir
	data, err := os.ReadFile(recordPath(b))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return s, err
	default:
		if err := json.Unmarshal(data, &s.record); err != nil {
			return s, fmt.Errorf("read %s: %w", recordPath(b), err)
		}
		s.shaped = true
	}
	if server != "" || !s.shaped {
		address, err := f.address()
		if err != nil {
			return s, err
		}
		if address != s.Server {
			s.Server, s.PasswordFile, s.TokenFile = address, "", ""
		}
	}
	switch _, err := os.Stat(s.PasswordFile); {
	case s.login != loginFiles{} || f.Getenv("CODALAB_PASSWORD") != "":
	case s.TokenFile != "":
		s.login.token = s.TokenFile
	case err == nil:
		s.login.password = s.PasswordFile // else no worker has needed it yet
	}
	return s, nil
}
