// Package atomicfile publishes files on disks that other hosts read, too, and flushes
// them.
//
// A reader sees either no file or the whole content: Write writes a temporary file in the
// same directory, flushes it and renames it. It flushes the directory, too, so a
// published file survives a crash of the host.
package atomicfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write publishes data as path, and replaces an existing file. The directory must exist.
func Write(path string, data []byte, perm fs.FileMode) error {
	tmp, err := Temporary(path, data, perm)
	if err != nil {
		return err
	}
	if err := rename(tmp, path); err != nil {
		return errors.Join(fmt.Errorf("publish %s: %w", path, err), os.Remove(tmp))
	}
	return SyncDir(filepath.Dir(path))
}

// WriteJSON publishes a value as a file of JSON that only its owner may read.
func WriteJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return Write(path, append(data, '\n'), 0o600)
}

// ReadJSON reads a file of JSON into a value.
func ReadJSON(path string, value any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

// Temporary writes data, flushed, to a new file in path's directory and returns its name.
// The caller renames, links or removes it.
func Temporary(path string, data []byte, perm fs.FileMode) (name string, err error) {
	f, err := createTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return f.Name(), nil
}
