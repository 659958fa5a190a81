package nfstest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestNamesAndListingsAreStale(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	s.write(s.a, "goes", "")
	s.exists(s.b, "goes", true)
	s.exists(s.b, "comes", false)
	s.lists(s.b, "goes")

	must(t, os.Remove(filepath.Join(s.a, "goes")))
	s.write(s.a, "comes", "")
	s.exists(s.b, "goes", true)
	s.exists(s.b, "comes", false)
	s.lists(s.b, "goes")
	for _, kind := range []Kind{StaleName, StaleAbsence, StaleListing} {
		s.struck(kind)
	}

	s.write(s.b, "own", "") // the server's reply shows that another client has changed the directory
	s.exists(s.b, "goes", false)
	s.exists(s.b, "comes", true)
	s.lists(s.b, "comes", "own")
}

func TestOwnChangeConfirmsWhatWasRight(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	s.exists(s.a, "lease", false)
	s.write(s.a, "own", "")
	s.lists(s.a, "own")
	s.write(s.b, "lease", "")
	s.exists(s.a, "lease", false)
	s.struck(StaleAbsence)
}

func TestClientSeesItsOwnChangesAtOnce(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	d := filepath.Join(s.a, "d")
	for range 3 {
		s.exists(s.a, "d", false)
		must(t, os.Mkdir(d, 0o755))
		s.exists(d, "x", false)
		s.lists(d)
		s.write(d, "x", "one")
		s.lists(d, "x")
		must(t, os.Link(filepath.Join(d, "x"), filepath.Join(d, "y")))
		s.write(d, "y", "three")
		s.reads(d, "x", "three")
		must(t, os.Chmod(filepath.Join(d, "x"), 0o600))
		if info, err := os.Stat(filepath.Join(d, "y")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		must(t, os.Rename(filepath.Join(d, "x"), filepath.Join(s.a, "z")))
		s.exists(d, "x", false)
		s.exists(s.a, "z", true)
		s.lists(d, "y")
		s.lists(s.a, "d", "z")
		must(t, os.Rename(filepath.Join(s.a, "z"), filepath.Join(d, "y"))) // the same file: both stay
		s.lists(s.a, "d", "z")
		must(t, os.Remove(filepath.Join(s.a, "z")))
		must(t, os.RemoveAll(d))
		s.lists(s.a)
	}
}

func TestOpenSeesWhatWasClosedBefore(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	for _, text := range []string{"one", "three", "six!", ""} {
		s.write(s.a, "x", text)
		s.reads(s.b, "x", text)
	}
}

func TestWhatIsNotFlushedOthersDoNotSee(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	defer unshared()()
	f, err := os.Create(filepath.Join(s.a, "x"))
	must(t, err)
	_, err = f.WriteString("one")
	must(t, err)
	s.reads(s.b, "x", "")
	must(t, f.Sync())
	s.reads(s.b, "x", "one")
	_, err = f.WriteString(" two")
	must(t, err)
	s.reads(s.a, "x", "one two")
	must(t, f.Close())
	s.reads(s.b, "x", "one two")
}

func TestOpenFileKeepsWhatItHasRead(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	s.write(s.a, "x", "old")
	f, err := os.Open(filepath.Join(s.b, "x"))
	must(t, err)
	defer f.Close()
	read := func(want string) {
		t.Helper()
		got, err := io.ReadAll(io.NewSectionReader(f, 0, 100))
		if err != nil || string(got) != want {
			t.Errorf("reads %q, %v; want %q", got, err, want)
		}
	}
	read("old")
	s.write(s.a, "x", "new")
	read("old")
	s.reads(s.b, "x", "new") // opened anew
	read("new")
}

func TestOnlyOneClientCreatesExclusively(t *testing.T) {
	t.Parallel()
	s := forgetful(t)
	s.exists(s.b, "x", false)
	create := func(dir string) error {
		f, err := os.OpenFile(filepath.Join(dir, "x"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			err = f.Close()
		}
		return err
	}
	must(t, create(s.a))
	if err := create(s.b); !errors.Is(err, os.ErrExist) {
		t.Errorf("the second: %v", err)
	}
	s.write(s.a, "y", "one") // b believes that it is absent: it opens the existing file
	f, err := os.OpenFile(filepath.Join(s.b, "y"), os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || string(got) != "one" {
		t.Errorf("reads %q, %v", got, err)
	}
}
