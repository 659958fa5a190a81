package nfstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// changes are the calls whose reply may be lost: the preparation of each, the call, the answer to a
// call that is sent again, and the effect on the disk.
type change struct {
	op      Op
	prepare func(s *site, name string)
	do      func(name string) error
	again   error
	done    func(s *site, name string) bool
}

func changes() []change {
	file := func(s *site, name string) { s.write(s.disk, name, "") }
	nothing := func(*site, string) {}
	there := func(s *site, name string) bool { return present(s, name) }
	gone := func(s *site, name string) bool { return !present(s, name) }
	return []change{
		{Create, nothing, func(name string) error {
			f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err == nil {
				err = f.Close()
			}
			return err
		}, syscall.EEXIST, there},
		{MkDir, nothing, func(name string) error { return os.Mkdir(name, 0o700) }, syscall.EEXIST, there},
		{SymLink, nothing, func(name string) error { return os.Symlink("x", name) }, syscall.EEXIST, there},
		{Link, func(s *site, name string) { file(s, name+".from") }, func(name string) error {
			return os.Link(name+".from", name)
		}, syscall.EEXIST, there},
		{Rename, func(s *site, name string) { file(s, name+".from") }, func(name string) error {
			return os.Rename(name+".from", name)
		}, syscall.ENOENT, there},
		{Remove, file, syscall.Unlink, syscall.ENOENT, gone},
		{RmDir, func(s *site, name string) { must(s.t, os.Mkdir(filepath.Join(s.disk, name), 0o700)) }, syscall.Rmdir, syscall.ENOENT, gone},
		{SetAttr, file, func(name string) error { return os.Truncate(name, 5) }, nil, func(s *site, name string) bool {
			return s.size(s.disk, name) == 5
		}},
	}
}

func present(s *site, name string) bool {
	_, err := os.Lstat(filepath.Join(s.disk, name))
	return err == nil
}

func TestLostReplyHidesWhatWasDone(t *testing.T) {
	t.Parallel()
	for _, c := range changes() {
		t.Run(string(c.op), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, Options{})
			s.Inject(Fault{Kind: LostReply, Rate: 1, Ops: []Op{c.op}})
			again, gaveUp := 0, 0
			for i := 0; again == 0 || gaveUp == 0; i++ {
				name := fmt.Sprint(i)
				c.prepare(s, name)
				switch err := c.do(filepath.Join(s.a, name)); {
				case errors.Is(err, syscall.EIO):
					gaveUp++
				case errors.Is(err, c.again):
					again++
				default:
					t.Fatalf("%v", err)
				}
				if !c.done(s, name) {
					t.Fatalf("%s %d was not done", c.op, i)
				}
			}
			s.struck(LostReply)
			s.Inject()
			c.prepare(s, "last")
			must(t, c.do(filepath.Join(s.a, "last")))
		})
	}
}

func TestLostReplyOfALinkIsReadBackThroughOpen(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	s.Inject(Fault{Kind: LostReply, Rate: 1, Ops: []Op{Link}})
	for i := 0; ; i++ {
		name := filepath.Join(s.a, fmt.Sprint(i))
		must(t, os.WriteFile(name, nil, 0o600))
		err := os.Link(name, name+".lease")
		if err == nil {
			t.Fatal("the reply was not lost")
		}
		f, openErr := os.Open(name)
		must(t, openErr)
		info, statErr := f.Stat()
		must(t, errors.Join(statErr, f.Close()))
		if n := links(info); n != 2 {
			t.Fatalf("%v, and %d links", err, n)
		}
		if errors.Is(err, syscall.EIO) {
			return
		}
	}
}

func links(info os.FileInfo) uint64 {
	st, _ := info.Sys().(*syscall.Stat_t)
	return st.Nlink
}

func TestErrorsOfWritesAppearByTheClose(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]syscall.Errno{IO: syscall.EIO, NoSpace: syscall.ENOSPC} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, Options{})
			s.Inject(Fault{Kind: kind, Rate: 1})
			defer unshared()()
			f, err := os.Create(filepath.Join(s.a, "bad"))
			must(t, err)
			_, err = f.WriteString("two")
			must(t, err)
			is(t, f.Sync(), want)
			_, err = f.WriteString("three")
			must(t, err)
			is(t, f.Close(), want)
			big, err := os.Create(filepath.Join(s.a, "big"))
			must(t, err)
			_, _ = big.Write(make([]byte, 2*mostPending)) // it may report the error already
			is(t, big.Close(), want)
			s.struck(kind)
			s.Inject()
			s.write(s.a, "bad", "four")
			s.reads(s.b, "bad", "four")
		})
	}
}
