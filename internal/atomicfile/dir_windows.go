package atomicfile

import "os"

// SyncDir does nothing: Windows flushes no directories.
func SyncDir(string) error { return nil }

func createTemp(dir, prefix string) (*os.File, error) { return os.CreateTemp(dir, prefix+"*") }

func rename(from, to string) error { return os.Rename(from, to) }
