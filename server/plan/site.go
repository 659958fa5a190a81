package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const (
	// minMemory is the least memory in bytes that a run may request: Docker starts no container with less
	// (codalab/server/bundle_manager.py: MINIMUM_REQUEST_MEMORY_BYTES).
	minMemory = 4 << 20
	// defaultMemory is the request of a run that requests no memory.
	defaultMemory = "2g"
)

// Site has the rules of a site for the requests of all runs.
type Site struct {
	// DefaultCPUImage and DefaultGPUImage are the references for runs that name no image. Without a tag they
	// mean ":latest".
	DefaultCPUImage, DefaultGPUImage string
	// MaxDisk and MaxMemory, in bytes, and MaxTime are the most that a run may request; 0 means no limit.
	// A run that requests no disk or time gets what is allowed.
	MaxDisk, MaxMemory int64
	MaxTime            time.Duration
}

func (s Site) maxSeconds() int64 { return int64(s.MaxTime / time.Second) }

// Resources returns a run's requests, with defaults (codalab/server/bundle_manager.py:
// _compute_bundle_resources). Its metadata must have passed codalab.CheckMetadata.
func (s Site) Resources(m codalab.Metadata) codalab.Resources {
	r := codalab.Resources{
		CPUs: max(m.Int("request_cpus"), 1), GPUs: max(m.Int("request_gpus"), 0),
		Network: m.Bool("request_network"), Tag: m.String("request_queue"), ImageReference: m.String("request_docker_image"),
	}
	memory := m.String("request_memory")
	if memory == "" {
		memory = defaultMemory
	}
	if n, err := codalab.ParseSize(memory); err == nil {
		r.Memory = n
	}
	r.Disk, r.Time = s.MaxDisk, s.maxSeconds()
	if n, err := codalab.ParseSize(m.String("request_disk")); err == nil {
		r.Disk = n
	}
	if d, err := codalab.ParseDuration(m.String("request_time")); err == nil {
		r.Time = int64(d / time.Second)
	}
	if r.ImageReference == "" {
		r.ImageReference = s.DefaultCPUImage
		if r.GPUs > 0 {
			r.ImageReference = s.DefaultGPUImage
		}
	}
	r.ImageReference = tagged(r.ImageReference)
	return r
}

// tagged adds ":latest" to a reference that has no tag. CodaLab's own server takes any colon for a tag's,
// also one before a registry's port. Files have no tag: "/images/x.sif", "oci:/images/x".
func tagged(reference string) string {
	name := reference[strings.LastIndex(reference, "/")+1:]
	file := strings.HasPrefix(reference, "/") || strings.Contains(reference, ":/")
	if file || strings.Contains(name, ":") {
		return reference
	}
	return reference + ":latest"
}

// Refuses returns the reason for which a waiting run fails: it requests more than the site's limits or
// its owner's quota allow. The reason is empty if it may run. Cap reduces what the run did not request
// itself (codalab/server/bundle_manager.py: _get_staged_bundles_to_run). CodaLab's own server also wants 512 MiB of
// the disk quota left over (DISK_QUOTA_SLACK_BYTES). This one counts every byte that comes, and needs no such slack.
func (s Site) Refuses(run *Waiting, owner Quota) string {
	size, r := codalab.FormatSize, run.Resources
	var why []string
	more := func(format string, spell func(int64) string, asked, most int64, of string) {
		why = append(why, fmt.Sprintf(format, spell(asked), spell(most), spell(asked-most))+of)
	}
	if left := owner.Left().Bytes; run.AsksDisk && r.Disk > 0 && r.Disk > left {
		more("Requested more disk (%s) than user disk quota left (%s) by %s", size, r.Disk, left, owner.ofUsedDisk())
	} else if s.MaxDisk > 0 && r.Disk > s.MaxDisk {
		more("Requested more disk (%s) than maximum limit (%s) by %s", size, r.Disk, s.MaxDisk, "")
	}
	if left := owner.TimeLeft(); run.AsksTime && r.Time > 0 && r.Time > left {
		more("Requested more time (%s) than user time quota left (%s) by %s", spellSeconds, r.Time, left, owner.ofUsedTime())
	} else if most := s.maxSeconds(); most > 0 && r.Time > most {
		more("Requested more time (%s) than maximum limit (%s) by %s", spellSeconds, r.Time, most, "")
	}
	switch {
	case s.MaxMemory > 0 && r.Memory > s.MaxMemory:
		more("Requested more memory (%s) than maximum limit (%s) by %s", size, r.Memory, s.MaxMemory, "")
	case r.Memory > 0 && r.Memory < minMemory:
		why = append(why, fmt.Sprintf("Requested less memory (%s) than minimum limit (%s) by %s", size(r.Memory), size(minMemory), size(minMemory-r.Memory)))
	}
	return strings.Join(why, ". ")
}

// Caps reports whether Cap reduces anything of a run with this metadata.
func (s Site) Caps(m codalab.Metadata) bool { return s.capsDisk(m) || s.capsTime(m) }

func (s Site) capsDisk(m codalab.Metadata) bool {
	return s.MaxDisk > 0 && m.String("request_disk") == ""
}

func (s Site) capsTime(m codalab.Metadata) bool {
	return s.MaxTime > 0 && m.String("request_time") == ""
}

// Cap reduces the disk and the time of a run that requested none to what its owner's quota has left
// (_compute_request_disk, _compute_request_time).
func (s Site) Cap(r codalab.Resources, m codalab.Metadata, owner Quota) codalab.Resources {
	if s.capsDisk(m) { // 0 would mean no limit
		r.Disk = max(1, min(r.Disk, owner.Left().Bytes-1))
	}
	if s.capsTime(m) {
		r.Time = max(1, min(r.Time, owner.TimeLeft()-1))
	}
	return r
}
