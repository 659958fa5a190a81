// Package madeonce keeps what takes long to make, such as the root of a Debian, for all processes of a machine.
package madeonce

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Path returns the path of a file or directory of dir that build makes if it is missing. key has everything that the content
// depends on. One process makes something in dir at a time, and the others wait; what is made appears in one step, and
// nobody may change it. build gets the path of an empty directory, which Path removes in the end, and returns the path in it
// of what is kept. An error of build is returned as it is, and the next call tries again.
func Path(dir, key string, build func(tmp string) (made string, err error)) (string, error) {
	kept := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(key)))[:12])
	if _, err := os.Stat(kept); err == nil {
		return kept, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(kept); err == nil {
		return kept, nil // another process has made it
	}
	tmp, err := os.MkdirTemp(dir, ".building-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a leftover has no meaning
	made, err := build(tmp)
	if err != nil {
		return "", err
	}
	return kept, os.Rename(made, kept)
}
