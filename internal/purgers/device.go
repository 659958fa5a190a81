package purgers

import "golang.org/x/sys/unix"

// deviceOf returns the device of the file system that a path is on.
func deviceOf(path string) (uint64, error) {
	var s unix.Stat_t
	err := unix.Stat(path, &s)
	return s.Dev, err
}
