package testenv

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Kept returns the path of what a program makes from these arguments and the path as its last one. It is made once for all
// runs of tests on this machine, by one process at a time, and nobody may change it. An error is the program's own.
func Kept(tb testing.TB, program func(args ...string) error, args ...string) (string, error) {
	tb.Helper()
	UsesMachine()
	return kept(filepath.Join(shared, "kept"), program, args)
}

func kept(dir string, program func(args ...string) error, args []string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(args, "\x00"))))[:12])
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }() // unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	made := path + ".new" // also of a process that was killed
	if err := program(append(append([]string{}, args...), made)...); err != nil {
		return "", err
	}
	return path, os.Rename(made, path)
}
