package codalab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// SizesText has the most that one run can have, in words.
func (q Queue) SizesText() string {
	const boundless = 1 << 49 // a bridge tells such a size where Slurm knows no memory
	var sizes []string
	for _, size := range q.Sizes {
		text := counted(size.CPUs, "CPU")
		if size.MemoryBytes < boundless {
			text += ", " + FormatSize(size.MemoryBytes)
		}
		if size.GPUs > 0 {
			text += ", " + counted(size.GPUs, "GPU") + gpuTypesText(q.GPUTypes)
		}
		sizes = append(sizes, text)
	}
	return strings.Join(sizes, " or ")
}

// gpuTypesText names the types of GPUs, and how many of each one run can have if there are several.
func gpuTypesText(types map[string]int64) string {
	names := slices.Sorted(maps.Keys(types))
	switch len(names) {
	case 0:
		return ""
	case 1:
		return " (" + names[0] + ")"
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s: %d", name, types[name])
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// LimitsText has the time limits of runs, in words; empty for none.
func (q Queue) LimitsText() string {
	spell := func(seconds int64) string { return SpellDuration(time.Duration(seconds) * time.Second) }
	switch {
	case q.MaxTime == 0 && q.DefaultTime == 0:
		return ""
	case q.MaxTime == 0:
		return spell(q.DefaultTime)
	case q.DefaultTime == 0 || q.DefaultTime == q.MaxTime:
		return "at most " + spell(q.MaxTime)
	}
	return spell(q.DefaultTime) + ", at most " + spell(q.MaxTime)
}

// String names the users.
func (u QueueUsers) String() string {
	if u.Everybody {
		return "everybody"
	}
	users := slices.Clone(u.Users)
	for _, group := range u.Groups {
		group = "group " + group
		if u.PermittedTo != "" {
			group += " (runs with all permissions for " + u.PermittedTo + ")"
		}
		users = append(users, group)
	}
	return strings.Join(users, ", ")
}

// ImagesText has the images of runs that name none.
func (q Queue) ImagesText() string {
	hasGPUs := slices.ContainsFunc(q.Sizes, func(size NodeSize) bool { return size.GPUs > 0 })
	if hasGPUs && q.DefaultGPUImage != q.DefaultCPUImage {
		return q.DefaultCPUImage + ", with GPUs " + q.DefaultGPUImage
	}
	return q.DefaultCPUImage
}

// counted is a number of things: "1 CPU", "2 CPUs".
func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
