package bundles

import (
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// display says how CodaLab's web page shows a bundle's metadata, and which of it the page lets its owner change
// (codalab/rest/bundles.py: build_bundles_document). The page reads it in the object's meta.
type display struct {
	Editable     []string          `json:"editable_metadata_keys"`
	Types        map[string]string `json:"metadata_type"`
	Descriptions map[string]string `json:"metadata_descriptions"`
}

// displayMeta is the display of a bundle for a user with the permission have on it; without keys if that is none.
func displayMeta(b store.Bundle, have int) display {
	shown := display{Editable: []string{}, Types: map[string]string{}, Descriptions: map[string]string{}}
	var keys []codalab.MetadataKey
	if have >= store.PermissionRead {
		keys = codalab.MetadataKeys(b.Type)
	}
	waits := b.State == codalab.StateCreated || b.State == codalab.StateStaged
	for _, key := range keys {
		shown.Types[key.Key] = shownType(key)
		shown.Descriptions[key.Key] = description(key)
		if !key.Generated && (waits || !lockedAfterStart(b.Type, key.Key)) {
			shown.Editable = append(shown.Editable, key.Key)
		}
	}
	return shown
}

// lockedAfterStart reports whether the page lets nobody change a key once the bundle's worker has begun
// (codalab/bundles: lock_after_start).
func lockedAfterStart(bundleType, key string) bool {
	switch {
	case key == "allow_failed_dependencies":
		return true
	case bundleType != codalab.TypeRun:
		return false
	}
	return key == "exclude_patterns" || key == "store" || strings.HasPrefix(key, "request_")
}

// shownType is the type by which the page shows a value (codalab/lib/worksheet_util.py: get_metadata_types). Sizes and times
// that a person writes are texts, numbers of the server are not.
func shownType(key codalab.MetadataKey) string {
	switch {
	case key.Type == codalab.TypeSize, key.Type == codalab.TypeDuration:
		return string(codalab.TypeString)
	case slices.Contains([]string{"created", "started", "last_updated"}, key.Key):
		return "date"
	case slices.Contains([]string{"data_size", "memory", "memory_max"}, key.Key):
		return "size"
	case key.Generated && (key.Key == "time" || strings.HasPrefix(key.Key, "time_")):
		return "duration"
	}
	return string(key.Type)
}

// description is a line about a key, which the page shows beside its name.
func description(key codalab.MetadataKey) string {
	if key.Help != "" {
		return strings.ToUpper(key.Help[:1]) + key.Help[1:] + " (" + key.Key + ")"
	}
	text := map[string]string{
		"created":                "When it was made",
		"data_size":              "Size of its contents",
		"failure_message":        "Why it failed",
		"error_traceback":        "Where it failed",
		"cpu_usage":              "Share of the CPUs in use",
		"memory_usage":           "Share of the memory in use",
		"actions":                "What its users have asked of it while it ran",
		"time":                   "Time for which the command ran",
		"time_user":              "CPU time of the command itself",
		"time_system":            "CPU time of the system for the command",
		"memory":                 "Memory in use",
		"memory_max":             "Most memory in use at a time",
		"started":                "When its worker began",
		"last_updated":           "When its worker told of it last",
		"run_status":             "What its worker does with it",
		"staged_status":          "What it waits for",
		"time_preparing":         "Time until the command began",
		"time_running":           "Time for which the command ran",
		"time_cleaning_up":       "Time after the command's end until the upload",
		"time_uploading_results": "Time of the upload of its results",
		"docker_image":           "The image in which it ran",
		"exitcode":               "Exit code of the command",
		"job_handle":             "Its job in the batch system",
		"remote":                 "The worker that ran it",
		"remote_history":         "The workers that ran it",
		"on_preemptible_worker":  "Whether its worker could be taken away",
	}[key.Key]
	if text == "" {
		return key.Key
	}
	return text + " (" + key.Key + ")"
}
