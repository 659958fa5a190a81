package disktrial

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Pair has the ways of files from one directory to another. A text is empty if the way is open, and otherwise the
// reason why it is not.
type Pair struct {
	HardLinks string `json:"hard_links,omitempty"`
	Clone     string `json:"clone,omitempty"`
}

// Between tries the ways from one directory to another.
func Between(from, to string) (p Pair, err error) {
	var dirs [2]string
	for i, dir := range []string{from, to} {
		if dirs[i], err = os.MkdirTemp(dir, ".trial-"); err != nil {
			return p, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dirs[i])) }()
	}
	if err := cloneBetween(dirs[0], dirs[1]); err != nil {
		p.Clone = cause(err)
	}
	source := filepath.Join(dirs[0], "linked")
	if err := errors.Join(os.WriteFile(source, nil, 0o600), os.Link(source, filepath.Join(dirs[1], "second"))); err != nil {
		p.HardLinks = cause(err)
	}
	return p, nil
}

// cloneBetween makes a copy that shares its blocks with the original (ioctl_ficlone(2)).
func cloneBetween(from, to string) error {
	const content = "the same blocks"
	original := filepath.Join(from, "original")
	if err := os.WriteFile(original, []byte(content), 0o600); err != nil {
		return err
	}
	source, err := os.Open(original)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // it was only read
	clone, err := os.Create(filepath.Join(to, "clone"))
	if err != nil {
		return err
	}
	if err := errors.Join(unix.IoctlFileClone(int(clone.Fd()), int(source.Fd())), clone.Close()); err != nil {
		return err
	}
	got, err := os.ReadFile(clone.Name())
	if err == nil && string(got) != content {
		err = errors.New("a clone has another content")
	}
	return err
}
