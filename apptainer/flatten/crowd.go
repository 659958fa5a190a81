package flatten

import "fmt"

// crowd is the sum of the squares of the names in directories. The time of mksquashfs and tar2sqfs
// grows with it (squashfs-tools, tar.c: add_tarfile, which compares a name with all others in its
// directory).
type crowd struct{ sum, limit int64 }

// grow counts the names in a directory that had fewer before.
func (c *crowd) grow(dir string, before, now int64) error {
	if c.sum += now*now - before*before; c.sum > c.limit*c.limit {
		return fmt.Errorf("%w: %d names in the directory %s; one directory may have fewer than %d, and several fewer still",
			ErrTooLarge, now, quoted("/"+dir), c.limit)
	}
	return nil
}
