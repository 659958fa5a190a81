// Package smallfile opens, reads and writes small files, such as records and files of /proc, with few system calls.
//
// Package os makes six more calls for each file: it asks whether the file can be polled, which no file on a disk can, and reads a
// file of unknown size in small parts. Every start of a bundle opens some thirty such files, and system calls are slow on
// virtual machines.
package smallfile

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// part is the length of one read. The kernel returns most files one page at a time.
const part = 16 << 10

// Read returns a file's content. An error is a *fs.PathError.
func Read(path string) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // it was only read
	var content []byte
	buffer := make([]byte, part)
	for {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Read(fd, buffer)
			return err
		})
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if n <= 0 {
			return content, nil
		}
		content = append(content, buffer[:n]...)
	}
}

// Touch makes an empty file with these permissions, if there is none. An error is a *fs.PathError.
func Touch(path string, perm fs.FileMode) error {
	fd, err := open(path, unix.O_WRONLY|unix.O_CREAT, uint32(perm.Perm()))
	if err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return &fs.PathError{Op: "close", Path: path, Err: err}
	}
	return nil
}

// Open is os.OpenFile for files on a disk and directories. An error is a *fs.PathError.
func Open(path string, flags int, perm fs.FileMode) (*os.File, error) {
	fd, err := open(path, flags, uint32(perm.Perm()))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func open(path string, flags int, perm uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC, perm)
		return err
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// retry calls f again while a signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
