package plan

import (
	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/spool"
)

// platform returns what the attempt's command runs on, for a report; nil before its worker has begun it. Its records may tell
// nothing yet, or be those of an older worker.
func (r Row) platform() *codalab.Platform {
	if r.Begun == nil {
		return nil
	}
	ran := r.ran()
	p := codalab.Platform{Site: ran.Cluster, GPUs: ran.GPUs, GPUDriver: ran.GPUDriver}
	if ran.Worker != "" {
		p.Software = append(p.Software, codalab.Software{Name: "cl-slurm", Version: ran.Worker})
	}
	if r.SlurmVersion != "" {
		p.Software = append(p.Software, codalab.Software{Name: "Slurm", Version: r.SlurmVersion})
	}
	if ran.Runtime != "" && ran.Runtime != runtimes.Builtin { // that is a part of cl-slurm
		p.Software = append(p.Software, codalab.Software{Name: string(ran.Runtime), Version: ran.RuntimeVersion})
	}
	if r.Verdict != nil && r.Staged != nil { // once, because there may be many
		for _, d := range r.Staged.Dependencies {
			if d.Digest != "" {
				p.Inputs = append(p.Inputs, codalab.InputDigest{ChildPath: d.ChildPath, Digest: d.Digest})
			}
		}
	}
	p = p.Bounded(termtext.OneLine)
	return &p
}

// ran returns the newest record of the platform of the attempt's command.
func (r Row) ran() spool.Ran {
	switch {
	case r.Exit != nil:
		return r.Exit.Ran
	case r.Status != nil:
		return r.Status.Ran
	}
	return spool.Ran{}
}
