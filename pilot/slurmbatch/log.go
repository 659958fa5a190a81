package slurmbatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
	"github.com/cl-slurm/cl-slurm/pilot"
)

// LogFile returns the path of a pilot's log. The file may not exist yet.
func (b *Backend) LogFile(name string) string { return filepath.Join(b.WorkDir, name, name+".out") }

// Logged returns the pilots with files in WorkDir. Those that printed last come first, and those without a log last.
func (b *Backend) Logged(context.Context) ([]pilot.Pilot, error) {
	entries, err := os.ReadDir(b.WorkDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the logs of workers: %w", err)
	}
	var pilots []pilot.Pilot
	printed := map[string]time.Time{}
	for _, e := range entries {
		if !b.IsPilot(e.Name()) {
			continue
		}
		job, _ := os.ReadFile(b.jobFile(e.Name())) // without the file its job is not known
		pilots = append(pilots, pilot.Pilot{Name: e.Name(), Job: strings.TrimSpace(string(job))})
		if info, err := os.Stat(b.LogFile(e.Name())); err == nil {
			printed[e.Name()] = info.ModTime()
		}
	}
	slices.SortFunc(pilots, func(p, q pilot.Pilot) int { return printed[q.Name].Compare(printed[p.Name]) })
	return pilots, nil
}

const (
	// followEvery is the interval of reads of a followed log; askEvery is the interval of questions to Slurm
	// whether the pilot has ended.
	followEvery = 300 * time.Millisecond
	askEvery    = 10 * time.Second
)

// WriteLog writes a pilot's log to w.
func (b *Backend) WriteLog(ctx context.Context, w io.Writer, p pilot.Pilot, follow bool) error {
	var done int64
	var asked time.Time
	for ended := !follow; ; {
		n, err := writeFrom(w, b.LogFile(p.Name), done)
		done += n
		switch {
		case errors.Is(err, fs.ErrNotExist) && !ended: // the job has not begun
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("log of worker %s: %w", pilot.WorkerID(p.Name), pilot.ErrNoLog)
		case err != nil || ended:
			return err
		}
		if err := pause.For(ctx, followEvery); err != nil {
			return err
		}
		if now := b.Now(); now.Sub(asked) >= askEvery {
			asked = now
			pilots, err := b.Pilots(ctx)
			ended = err == nil && !slices.ContainsFunc(pilots, func(q pilot.Pilot) bool { return q.Name == p.Name && q.Phase != pilot.Ended })
		}
	}
}

// writeFrom writes the part of a file from an offset on.
func writeFrom(w io.Writer, path string, from int64) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // only read
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.Copy(w, file)
	if err != nil {
		return n, fmt.Errorf("copy log: %w", err)
	}
	return n, nil
}
