package linkonce

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDiskThatIsUnfitIsFoundAtATry(t *testing.T) {
	t.Parallel()
	refuse := func(err error) func(d *disk) {
		return func(d *disk) { d.link = func(string) error { return &os.LinkError{Op: "link", Err: err} } }
	}
	flush := func(err error) func(d *disk) { return func(d *disk) { d.flush = func() error { return err } } }
	for name, c := range map[string]struct {
		spoil func(d *disk)
		want  string // empty for none
		unfit bool
	}{
		"a good disk":        {func(*disk) {}, "", false},
		"no links":           {refuse(syscall.EPERM), "it has no hard links (link  : operation not permitted)", true},
		"no links over FUSE": {refuse(syscall.ENOSYS), "it has no hard links", true},
		"no links over SMB":  {refuse(syscall.EOPNOTSUPP), "it has no hard links", true},
		"no flush":           {flush(syscall.EINVAL), "it cannot flush a directory (invalid argument)", true},
		"a full disk":        {func(d *disk) { d.write = func([]byte) (string, error) { return "", syscall.ENOSPC } }, "no space left on device", false},
		"a link that fails":  {refuse(syscall.EIO), "input/output error", false},
		"a flush that fails": {flush(syscall.EIO), "input/output error", false},
		"a link that fails once": {func(d *disk) {
			link, tries := d.link, 0
			d.link = func(temporary string) error {
				if tries++; tries == 1 {
					return syscall.EIO
				}
				return link(temporary)
			}
		}, "input/output error", false},
		"an answer that lies": {func(d *disk) {
			link := d.link
			d.link = func(temporary string) error { return errors.Join(link(temporary), syscall.EIO) }
		}, "", false},
		"a link that replaces": {func(d *disk) {
			link := d.link
			d.link = func(temporary string) error {
				if err := link(temporary); !errors.Is(err, syscall.EEXIST) {
					return err
				}
				path, _, _ := strings.Cut(filepath.Base(temporary)[1:], ".tmp-")
				return os.Rename(temporary, filepath.Join(filepath.Dir(temporary), path))
			}
		}, "its link(2) replaces a file", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "tried")
			d := onDisk(path, 0o600)
			c.spoil(&d)
			err := try(d)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnfit) != c.unfit {
				t.Errorf("%v, want %q, unfit %v", err, c.want, c.unfit)
			}
		})
	}
}

func TestTryLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Try(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := Try(filepath.Join(dir, "absent")); err == nil || errors.Is(err, ErrUnfit) {
		t.Errorf("of no directory: %v", err)
	}
}
