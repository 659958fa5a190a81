//go:build unix

package connections

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Descriptors returns the number of files and connections that this process may have open. Go has raised the soft
// limit to the hard one at the program's start.
func Descriptors() (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return int(min(limit.Cur, math.MaxInt32)), nil
}
