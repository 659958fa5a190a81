//go:build !linux

package tarstream

import (
	"errors"
	"os"
)

// openBeneath fails with errors.ErrUnsupported: this system has no call that opens a path below a directory.
func openBeneath(*os.Root, string) (*os.Root, error) { return nil, errors.ErrUnsupported }

// linkBetween fails, too.
func linkBetween(*os.Root, string, *os.Root, string) error { return errors.ErrUnsupported }
