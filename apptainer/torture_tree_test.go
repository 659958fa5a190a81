package apptainer_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// listTree describes each path below root on a line, with all properties that a program can see:
// kind, mode, owner, link target, the other names of the same file, extended attributes, content,
// and, except for directories, the time in seconds. It needs root.
func listTree(t *testing.T, root string) map[string]string {
	t.Helper()
	lines := map[string]string{}
	names := map[uint64][]string{} // of one file, by inode
	inodes := map[string]uint64{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		var s syscall.Stat_t
		if err := syscall.Lstat(path, &s); errors.Is(err, fs.ErrNotExist) {
			lines[name] = "unreachable" // as overlays list whiteouts without a target
			return nil
		} else if err != nil {
			return err
		}
		line, err := describe(path, s)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		lines[name] = line
		if !d.IsDir() {
			names[s.Ino] = append(names[s.Ino], name)
			inodes[name] = s.Ino
		}
		return nil
	})
	must(t, err)
	for name, inode := range inodes {
		if same := names[inode]; len(same) > 1 {
			slices.Sort(same)
			lines[name] += fmt.Sprintf(" names=%q", same)
		}
	}
	return lines
}

func describe(path string, s syscall.Stat_t) (string, error) {
	var b strings.Builder
	kinds := map[uint32]string{
		syscall.S_IFREG: "file", syscall.S_IFDIR: "dir", syscall.S_IFLNK: "link", syscall.S_IFIFO: "fifo", syscall.S_IFCHR: "char", syscall.S_IFBLK: "block", syscall.S_IFSOCK: "socket",
	}
	kind := s.Mode & syscall.S_IFMT
	fmt.Fprintf(&b, "%s %04o %d:%d", kinds[kind], s.Mode&0o7777, s.Uid, s.Gid)
	switch kind {
	case syscall.S_IFREG:
		content, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, " size=%d sum=%x", s.Size, sha256.Sum256(content))
		if len(content) <= 20 {
			fmt.Fprintf(&b, " content=%q", content)
		}
	case syscall.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, " target=%q", target)
	case syscall.S_IFCHR, syscall.S_IFBLK:
		fmt.Fprintf(&b, " device=%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev))
	}
	if kind != syscall.S_IFDIR {
		fmt.Fprintf(&b, " time=%d", s.Mtim.Sec)
	}
	attributes, err := listAttributes(path)
	if err != nil {
		return "", err
	}
	b.WriteString(attributes)
	return b.String(), nil
}

func listAttributes(path string) (string, error) {
	names := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, names)
	if err != nil {
		return "", fmt.Errorf("list attributes: %w", err)
	}
	var lines []string
	for name := range bytes.SplitSeq(names[:n], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, string(name), value)
		if err != nil {
			return "", fmt.Errorf("read attribute %s: %w", name, err)
		}
		lines = append(lines, fmt.Sprintf(" %s=%q", name, value[:n]))
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}
