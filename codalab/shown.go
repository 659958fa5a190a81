package codalab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FormatTime prints a time for people, with its zone.
func FormatTime(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2006-01-02 15:04:05 MST")
}

// FormatMetadata prints a value of metadata for people, a list as its elements, and times in a zone (worksheet_util.py:
// apply_func, with the formatting of each bundle's METADATA_SPECS).
func FormatMetadata(key string, value any, zone *time.Location) string {
	m := Metadata{key: value}
	if list, ok := value.([]any); ok {
		var words []string
		for _, w := range list {
			words = append(words, PythonStr(w))
		}
		return strings.Join(words, " ")
	}
	if _, number := value.(float64); !number {
		return PythonStr(value)
	}
	switch {
	case slices.Contains([]string{"created", "started", "last_updated"}, key):
		return FormatTime(m.Time(key), zone)
	case slices.Contains([]string{"data_size", "memory", "memory_max", "gpu_memory_max"}, key):
		if n := m.Int(key); n < 1024 {
			return fmt.Sprintf("%d bytes", n)
		}
		return FormatSize(m.Int(key))
	case key == "energy":
		return FormatEnergy(m.Int(key))
	case key == "cpu_hours" || key == "gpu_hours":
		return fmt.Sprintf("%.2f", m.Float(key))
	case strings.HasSuffix(key, "_usage"):
		short, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", m.Float(key)), 64) // it is a number
		return PythonFloat(short).String()
	case key == "time" || strings.HasPrefix(key, "time_"):
		return FormatDuration(time.Duration(m.Float(key) * float64(time.Second)))
	}
	return m.PythonText(key)
}

// PythonText is PythonStr of a value. A whole number has a decimal point if the key's type is float.
func (m Metadata) PythonText(key string) string {
	if _, number := m[key].(float64); number {
		for _, k := range MetadataKeys(TypeRun) {
			if k.Key == key && k.Type == TypeFloat {
				return PythonFloat(m.Float(key)).String()
			}
		}
	}
	return PythonStr(m[key])
}

// IsStale reports whether a key of the metadata describes a wait that is over.
func (b Bundle) IsStale(key string) bool {
	switch key {
	case "staged_status":
		return b.State != StateStaged
	case "run_status":
		return b.State.Final() && b.Metadata[key] != "Finished" || !b.State.Final() && !b.State.OnWorker()
	}
	return false
}
