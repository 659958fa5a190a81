package linkonce

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// ErrUnfit means that records cannot be settled in a directory, because its disk lacks a
// feature that Settle needs.
var ErrUnfit = errors.New("no attempt of a bundle can be begun there")

// Try checks that a directory supports the calls that Settle needs: link(2), which must
// not replace a file, and fsync(2) of the directory. It removes its files. The error
// wraps ErrUnfit and names the missing feature if a later try would fail in the same way;
// another error, such as a full disk, does not show that the disk is unfit.
func Try(dir string) error {
	path := filepath.Join(dir, ".try-"+rand.Text())
	defer func() { _ = os.Remove(path) }() // absent unless it was linked
	if err := try(onDisk(path, 0o600)); err != nil {
		return fmt.Errorf("test the disk of %s: %w", dir, err)
	}
	return nil
}

func try(d disk) error {
	var linkErrs [2]error
	for i := range linkErrs {
		temporary, err := d.write([]byte{byte(i)})
		if err != nil {
			return err
		}
		linkErrs[i] = d.link(temporary)
		_ = d.remove(temporary) // a leftover has no meaning
	}
	standing, err := d.read()
	switch first := linkErrs[0]; {
	case err != nil && isLacking(first):
		return fmt.Errorf("it has no hard links (%w): %w", first, ErrUnfit)
	case err != nil:
		return errors.Join(first, err)
	case len(standing) == 1 && standing[0] == 0:
	case first != nil: // the first may not have been linked
		return first
	default:
		return fmt.Errorf("its link(2) replaces a file: %w", ErrUnfit)
	}
	err = d.flush()
	if isLacking(err) {
		return fmt.Errorf("it cannot flush a directory (%w): %w", err, ErrUnfit)
	}
	return err
}

// isLacking reports whether an error means that the disk does not support a call. link(2)
// returns EPERM for that; a FUSE file system ENOSYS or any other error.
func isLacking(err error) bool {
	return slices.ContainsFunc([]error{syscall.EPERM, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EINVAL, syscall.EMLINK, syscall.EXDEV},
		func(no error) bool { return errors.Is(err, no) })
}
