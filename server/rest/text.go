package rest

import (
	"slices"
)

// MaxWorkerText bounds a worker's id, and the other texts that the server keeps of a worker in memory, in
// bytes.
const MaxWorkerText = 256

// Distinct returns the different texts of a list, without the empty one.
func Distinct(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > 0 && list[0] == "" {
		return list[1:]
	}
	return list
}

// Deref returns a text; empty for nil.
func Deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
