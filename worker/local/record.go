package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// record is the text of a job's file in the directory, <id>.json.
type record struct {
	ID      sbatch.JobID `json:"id"`
	Request request      `json:"request"`
	// Submitted, Started and Ended are zero before the event.
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	// State is PENDING, RUNNING or a final state.
	State sbatch.State `json:"state"`
	// Reason is the reason of the end, as in squeue(1).
	Reason string `json:"reason,omitempty"`
	// Exit is sbatch.Job.Exit.
	Exit string `json:"exit,omitempty"`
	// EndState is the final state of a running job that this scheduler is ending.
	EndState sbatch.State `json:"stop,omitempty"`

	// Of a job that has started: its processors and GPUs, its main process, and the boot of the
	// machine to which the process belongs (thisBoot).
	CPUs    []int   `json:"cpus,omitempty"`
	GPUs    []GPU   `json:"gpus,omitempty"`
	Process process `json:"process,omitzero"`
	Boot    string  `json:"boot,omitempty"`
}

// request is the part of an sbatch.Request that a scheduler for one machine uses.
type request struct {
	Name      string        `json:"name"`
	Comment   string        `json:"comment,omitempty"`
	Script    string        `json:"script"`
	Dir       string        `json:"dir,omitempty"`
	Output    string        `json:"output,omitempty"`
	CPUs      int           `json:"cpus"`
	GPUs      int           `json:"gpus,omitempty"`
	MemoryMiB int64         `json:"memory_mib,omitempty"`
	Time      time.Duration `json:"time_ns,omitempty"`
}

// job returns the job as Slurm shows it. Its node is set if it has begun.
func (r *record) job(node string) sbatch.Job {
	j := sbatch.Job{
		ID: r.ID, Name: r.Request.Name, Comment: r.Request.Comment, State: r.State, Reason: "None",
		Submitted: r.Submitted.Truncate(time.Second), Exit: r.Exit,
	}
	if r.Reason != "" {
		j.Reason = r.Reason
	}
	if !r.Started.IsZero() {
		j.Nodes, j.Start = node, r.Started.Truncate(time.Second)
	}
	return j
}

// records is the directory of the records.
type records struct{ dir string }

// path returns the path of a job's record without its suffix. The job's marker contains it, too.
func (d records) path(id sbatch.JobID) string { return filepath.Join(d.dir, id.String()) }

const recordSuffix = ".json"

// save publishes a record. When it returns nil, the record survives a crash of the machine.
func (d records) save(r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("record job %s: %w", r.ID, err)
	}
	if err := atomicfile.Write(d.path(r.ID)+recordSuffix, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("record job %s: %w", r.ID, err)
	}
	return nil
}

// writeScript writes the script of a job for its interpreter, next to its record.
func (d records) writeScript(r record) (string, error) {
	path := d.path(r.ID) + ".script"
	return path, os.WriteFile(path, []byte(r.Request.Script), 0o600)
}

// remove removes a job's files from the directory, the record last. It returns nil if there are
// none.
func (d records) remove(id sbatch.JobID) error {
	for _, suffix := range []string{".script", recordSuffix} {
		if err := os.Remove(d.path(id) + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// load reads all records.
func (d records) load() ([]record, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	var all []record
	for _, e := range entries {
		id, err := sbatch.ParseJobID(strings.TrimSuffix(e.Name(), recordSuffix))
		if err != nil || !strings.HasSuffix(e.Name(), recordSuffix) {
			continue // a script, the lock, or an unfinished write
		}
		text, err := os.ReadFile(filepath.Join(d.dir, e.Name()))
		if err != nil {
			return nil, err
		}
		var r record
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Join(d.dir, e.Name()), err)
		}
		if r.ID != id {
			return nil, fmt.Errorf("read %s: it is the record of job %s", filepath.Join(d.dir, e.Name()), r.ID)
		}
		all = append(all, r)
	}
	return all, nil
}
