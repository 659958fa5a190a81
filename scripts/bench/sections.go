package main

import (
	"fmt"
	"os"
)

// section is a part of an area that can be measured separately. It gets a directory of its
// own.
type section struct {
	name      string
	directory func() string
	measure   func(dir string)
}

// measureSections measures all sections of an area, or the one that PART names.
func measureSections(all []section) {
	only, found := os.Getenv("PART"), false
	for _, s := range all {
		if only != "" && only != s.name {
			continue
		}
		found = true
		dir := s.directory()
		err := attempt(func() { s.measure(dir) })
		_ = os.RemoveAll(dir) // a leftover has no meaning
		check(err)
	}
	if !found {
		check(fmt.Errorf("there is no PART %s", only))
	}
}

// onDisk makes a temporary directory.
func onDisk() string { return must(os.MkdirTemp("", "bench-")) }

// inMemory makes a directory in memory, if there is a file system there.
func inMemory() string {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		return onDisk()
	}
	return must(os.MkdirTemp(memory, "bench-"))
}
