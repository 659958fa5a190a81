package cache

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The tests of this file stop one process between two lines, and let others go
// on. What each shows went wrong once, or would have.

var interleavedKey = Key{Kind: "bundle", ID: "a"}

func openInside(t *testing.T, dir string, o Options) *Cache {
	t.Helper()
	c, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func text(s string) Fill {
	return func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte(s), 0o600) }
}

// got gets the key and returns where its content is.
func got(t *testing.T, c *Cache, h Holder, fill Fill) string {
	t.Helper()
	path, err := c.Get(t.Context(), Want{Key: interleavedKey, Holder: h}, fill)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tokenOf is that of a content.
func tokenOf(t *testing.T, path string) string {
	t.Helper()
	_, token, err := splitID(filepath.Base(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// retireAll takes everything out of use, one entry at least.
func retireAll(t *testing.T, c *Cache) {
	t.Helper()
	if done, err := c.Trim(t.Context(), TrimOptions{All: true}); err != nil || len(done.Retired) == 0 {
		t.Fatalf("retired %v, %v", done.Retired, err)
	}
}

func outNames(t *testing.T, c *Cache) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.place(retiredPlace), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func wantThere(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a pinned content is gone: %v", err)
	}
}

// dead is a process of this host that has ended and left its lease.
func dead(t *testing.T, c *Cache, token string) holderOfLease {
	t.Helper()
	h := c.self
	h.Token, h.Began = token, "1"
	lease, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.place(leasesPlace), c.entry(interleavedKey, false).hash)
	if err := os.WriteFile(path, lease, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// It had published it, and been killed before it gave its lease back; and what it
// had made was taken out of use before somebody finds the lease.
func TestWhatADeadProcessHasPublishedIsNotInherited(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
	path := got(t, c, "", text("content"))
	dead(t, c, tokenOf(t, path))
	retireAll(t, c)
	if err := c.Pin(t.Context(), interleavedKey, false, "row-1"); err != nil { // who sees the record still
		t.Fatal(err)
	}
	mine := c.self
	mine.Token = newToken()
	if _, _, err := c.tryLease(t.Context(), c.entry(interleavedKey, false), mine); err != nil {
		t.Fatal(err)
	}
	wantThere(t, path)
}

func TestNothingIsInheritedWhenTheRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{})
	path := got(t, c, "row-1", text("content"))
	e := c.entry(interleavedKey, false)
	h := dead(t, c, tokenOf(t, path))
	// ELOOP stands for EIO.
	if err := errors.Join(os.Rename(e.record(), e.record()+".x"), os.Symlink(filepath.Base(e.record()), e.record())); err != nil {
		t.Fatal(err)
	}
	c.inherit(e, h)
	wantThere(t, path)
}

// A process that is killed when it has left its half for the next fill leaves its
// lease too.
func TestLeftoverOutlivesTheLeaseOfWhoLeftIt(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{})
	failed := errors.New("it broke off")
	_, err := c.Get(t.Context(), Want{Key: interleavedKey, Resume: true}, func(ctx context.Context, tmp string) error {
		return errors.Join(text("half")(ctx, tmp), failed)
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	e := c.entry(interleavedKey, false)
	c.inherit(e, dead(t, c, newToken()))
	if _, err := os.Stat(e.content(leftToken)); err != nil {
		t.Errorf("the leftover is gone: %v", err)
	}
}

// The first caller has no holder. What it found, or made, is removed before its
// flight has come to its end, which the second one joins.
func TestPinnedGetDoesNotTakeWhatWasFoundBeforeItsPin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, other := openInside(t, dir, Options{Settle: -1}), openInside(t, dir, Options{Settle: -1})
	e := c.entry(interleavedKey, false)
	found, goOn := make(chan struct{}), make(chan struct{})
	c.join(t.Context(), e.record(), func(ctx context.Context) (string, error) {
		path, err := c.bring(ctx, e, Want{Key: interleavedKey}, text("content"))
		close(found)
		<-goOn
		return path, err
	})
	<-found
	retireAll(t, other)
	done := make(chan string)
	go func() {
		path, err := c.Get(t.Context(), Want{Key: interleavedKey, Holder: "row-1"}, text("content"))
		if err != nil {
			t.Error(err)
		}
		done <- path
	}()
	for joined := false; !joined; {
		c.mu.Lock()
		joined = c.flights[e.record()].callers == 2
		c.mu.Unlock()
	}
	close(goOn)
	wantThere(t, <-done)
}

// Some file systems link within one directory alone (BeeGFS before 7.4).
func TestEntryIsMadeAnewWhereItCannotBeLinkedBack(t *testing.T) {
	t.Parallel()
	elsewhere, err := os.MkdirTemp("/dev/shm", "cache-") //nolint:usetesting // it is to be on another file system
	if err != nil {
		t.Skipf("no second file system: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: time.Hour})
	if err := os.Symlink(elsewhere, filepath.Join(dir, interleavedKey.Kind)); err != nil {
		t.Fatal(err)
	}
	first := got(t, c, "", text("first"))
	e := c.entry(interleavedKey, false)
	record, err := os.ReadFile(e.record())
	if err != nil {
		t.Fatal(err)
	}
	out := c.retiredPath(e.id(tokenOf(t, first)) + "~" + newToken())
	if err := errors.Join(os.Remove(e.record()), os.WriteFile(out, record, 0o600)); err != nil {
		t.Fatal(err)
	}
	if second := got(t, c, "", text("second")); second == first {
		t.Error("it was linked back")
	}
	if left := outNames(t, c); len(left) != 1 || !strings.HasSuffix(left[0], spentSuffix) {
		t.Errorf("out of use are %v", left)
	}
}

func TestRecordOutOfUseThatCannotBeReadGoes(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", restoredSuffix} {
		unreadableGoes(t, end, Options{Settle: -1, Grace: 1})
	}
}

func TestRecordOutOfUseThatCannotBeReadGoesInAGroupToo(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && !testenv.AsResearcher(t) { // root may do anything
		return
	}
	unreadableGoes(t, "", Options{Settle: -1, Grace: 1, Group: true})
}

func unreadableGoes(t *testing.T, end string, o Options) {
	t.Helper()
	dir := t.TempDir()
	c := openInside(t, dir, o)
	first := got(t, c, "", text("first"))
	e := c.entry(interleavedKey, false)
	out := c.retiredPath(e.id(tokenOf(t, first)) + "~" + newToken() + end)
	if err := errors.Join(os.Rename(e.record(), out), os.Truncate(out, 0)); err != nil {
		t.Fatal(err)
	}
	got(t, c, "", text("second"))
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Dir(first), long, long); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what the first takes out of the list, the second sweeps
		if _, err := openInside(t, dir, o).Trim(t.Context(), TrimOptions{All: true}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(first); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its content: %v", err)
	}
	if left := outNames(t, c); len(left) > 0 {
		t.Errorf("out of use are %v", left)
	}
}

// late publishes a content as a process does that was stopped before its link, and
// whose lease another has by now.
func late(t *testing.T, c *Cache, content string) (path string) {
	t.Helper()
	e := c.entry(interleavedKey, false)
	l := &lease{cache: c, holderOfLease: c.self, ctx: t.Context()}
	l.Token = newToken()
	now := time.Now()
	l.confirmed.Store(&now)
	r := record{Format: format, Key: e.key, Token: l.Token, Size: int64(len(content)), Files: 1}
	err := errors.Join(os.Mkdir(e.object(l.Token), 0o700), text(content)(t.Context(), e.content(l.Token)), c.write(newSize(e.hash, l.Token, r.Size, "")))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.publish(l, e, r); err != nil {
		t.Fatal(err)
	}
	return e.content(l.Token)
}

func TestFirstContentDoesNotComeBackAfterTheSecond(t *testing.T) {
	t.Parallel()
	for range 8 { // whichever of the two is listed first
		firstDoesNotComeBack(t)
	}
}

func firstDoesNotComeBack(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	c, other := openInside(t, dir, Options{Settle: time.Hour}), openInside(t, dir, Options{Settle: time.Hour})
	var first string
	second := got(t, c, "", func(ctx context.Context, tmp string) error {
		first = late(t, other, "first") //nolint:contextcheck // another process's
		retireAll(t, other)             //nolint:contextcheck // the same
		return text("second")(ctx, tmp)
	})
	if second == first {
		t.Fatal("the second fill took the first one's content")
	}
	for range 3 {
		retireAll(t, other)
		if again := got(t, c, "", text("third")); again != second {
			t.Fatalf("after the second content comes %s; the first was %s", again, first)
		}
	}
}

// Who published the second was killed before it could see to what came before.
func TestFirstContentIsSpentWhenTheSecondIsFoundInItsPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: time.Hour})
	first := got(t, c, "", text("first"))
	e := c.entry(interleavedKey, false)
	out := c.retiredPath(e.id(tokenOf(t, first)) + "~" + newToken())
	away := filepath.Join(t.TempDir(), "record")
	if err := os.Rename(e.record(), away); err != nil {
		t.Fatal(err)
	}
	second := got(t, c, "row-1", text("second"))
	if err := os.Rename(away, out+restoredSuffix); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	if files := outNames(t, c); len(files) != 1 || files[0] != out+spentSuffix {
		t.Errorf("out of use are %v, while %s stands", files, second)
	}
}

// T takes the first content out of use between its publisher's link and its look,
// and W publishes another in its place.
func TestContentThatWasPublishedForAMomentIsNotAbandoned(t *testing.T) {
	t.Parallel()
	for range 60 { // whether T and W come in time is chance
		c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
		e := c.entry(interleavedKey, false)
		w := record{Format: format, Key: e.key, Token: newToken(), Size: 1, Files: 1}
		encoded, err := w.encode()
		if err != nil {
			t.Fatal(err)
		}
		tmp, out := filepath.Join(e.dir, "w"), c.retiredPath(e.id(newToken())+"~"+newToken())
		err = errors.Join(c.makeDir(e.dir), os.Mkdir(e.object(w.Token), 0o700), text("w")(t.Context(), e.content(w.Token)), os.WriteFile(tmp, encoded, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		taken := make(chan struct{})
		got(t, c, "row-1", func(ctx context.Context, tmpOfFirst string) error {
			go func() {
				defer close(taken)
				err := os.Rename(e.record(), out)
				for err != nil {
					err = os.Rename(e.record(), out)
				}
				_ = os.Link(tmp, e.record())
			}()
			return text("first")(ctx, tmpOfFirst)
		})
		<-taken
		files, err := filepath.Glob(out + "*")
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		_, r, err := c.readRetired(filepath.Base(files[0]), e.hash)
		if err != nil {
			t.Fatal(err)
		}
		wantThere(t, e.content(r.Token))
	}
}

// Another content stands by the time that who found the first one damaged takes
// it out of use.
func TestSoundContentIsRestoredThoughAnotherWasDamaged(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	if err := os.Remove(got(t, c, "", text("first"))); err != nil {
		t.Fatal(err)
	}
	e := c.entry(interleavedKey, false)
	r, err := c.look(e)
	if !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	second := got(t, c, "row-1", text("second"))
	if err := c.retire(e, r.Token, true); err != nil {
		t.Fatal(err)
	}
	if again := got(t, c, "", text("third")); again != second {
		t.Errorf("the pinned %s was replaced by %s", second, again)
	}
}

func TestRecordIsRetiredUnderTheNameOfItsContent(t *testing.T) {
	t.Parallel()
	for range 8 { // whichever of the two is listed first
		c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
		token := tokenOf(t, got(t, c, "", text("content")))
		e := c.entry(interleavedKey, false)
		wreck := newToken()
		if err := errors.Join(os.Mkdir(e.object(wreck), 0o700), c.write(newSize(e.hash, wreck, 1<<30, ""))); err != nil {
			t.Fatal(err)
		}
		retireAll(t, c)
		if out := outNames(t, c); len(out) != 1 || !strings.Contains(out[0], token) {
			t.Errorf("the record of %s is %v now", token, out)
		}
	}
}

func TestDirectoryThatWasHalfMadeForAGroupIsSwept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: -1, Grace: 1, Group: true})
	got(t, c, "", text("content"))
	left := filepath.Join(dir, interleavedKey.Kind, probePrefix+newToken())
	long := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Mkdir(left, 0o700), os.Chtimes(left, long, long)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there still: %v", err)
	}
}

// Whoever spends a name of a record that somebody is just restoring leaves two.
func TestRecordWithTwoNamesGoes(t *testing.T) {
	t.Parallel()
	for range 8 { // whichever of the two is listed first
		c := openInside(t, t.TempDir(), Options{Settle: -1})
		e := c.entry(interleavedKey, false)
		id := e.id(tokenOf(t, got(t, c, "", text("content"))))
		spent, live := c.retiredPath(id+"~"+newToken()+spentSuffix), c.retiredPath(id+"~"+newToken())
		if err := errors.Join(os.Link(e.record(), spent), os.Rename(e.record(), live)); err != nil {
			t.Fatal(err)
		}
		for range 3 { // one name each, and the content
			if _, err := c.Trim(t.Context(), TrimOptions{All: true}); err != nil {
				t.Fatal(err)
			}
		}
		if left := outNames(t, c); len(left) > 0 {
			t.Errorf("out of use are %v", left)
		}
	}
}

// Who restored it once died before it dropped the other name.
func TestDamagedContentIsNotTakenBack(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	first := got(t, c, "", text("content"))
	e := c.entry(interleavedKey, false)
	left := c.retiredPath(e.id(tokenOf(t, first)) + "~" + newToken() + restoredSuffix)
	if err := errors.Join(os.Link(e.record(), left), os.Truncate(first, 1)); err != nil {
		t.Fatal(err)
	}
	if second := got(t, c, "", text("content")); second == first {
		t.Error("Get returned what is damaged")
	}
}

func TestOneBadRecordKeepsNobodyFromSweeping(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: -1, Grace: 1})
	path := got(t, c, "", text("content"))
	e := c.entry(interleavedKey, false)
	bad, left := c.retiredPath(e.id(tokenOf(t, path))+"~"+newToken()), filepath.Join(dir, probePrefix+"1")
	long := time.Now().Add(-time.Hour)
	// EISDIR stands for EIO.
	err := errors.Join(os.Remove(e.record()), os.Mkdir(bad, 0o700), os.WriteFile(left, nil, 0o600), os.Chtimes(left, long, long), os.Chtimes(filepath.Dir(path), long, long))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), TrimOptions{}); err == nil {
		t.Error("a record that cannot be read is no error")
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was to be swept: %v", err)
	}
	wantThere(t, path) // of which nobody knows whether it is told of
}

// A sweep that read the list before the record was given another name knows from
// the name what it was.
func TestContentIsKnownByTheNameOfARecordThatHasMoved(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
	token := tokenOf(t, got(t, c, "", text("content")))
	e := c.entry(interleavedKey, false)
	retireAll(t, c)
	out := outNames(t, c)[0]
	// A name that leads nowhere stands for one that is gone when it is read.
	if err := errors.Join(os.Remove(out), os.Symlink("nowhere", out)); err != nil {
		t.Fatal(err)
	}
	if known, err := c.isKnown(e, token); err != nil || !known {
		t.Errorf("known: %v, %v", known, err)
	}
}

// What a failed fill has left is old, and may be being gone on with.
func TestSweepTakesNothingWhoseLeaseItCannotRead(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Grace: 1})
	e := c.entry(interleavedKey, false)
	token := newToken()
	long := time.Now().Add(-time.Hour)
	lease := filepath.Join(c.place(leasesPlace), e.hash)
	if err := errors.Join(c.makeDir(e.object(token)), os.Chtimes(e.object(token), long, long), os.Mkdir(lease, 0o700)); err != nil {
		t.Fatal(err)
	}
	w := sweeping{Cache: c}
	if orphan, err := w.isOrphan(e.dir, e.hash, token); err == nil || orphan { // EISDIR stands for EIO
		t.Errorf("orphan: %v, %v", orphan, err)
	}
	if err := errors.Join(os.Remove(lease), os.WriteFile(lease, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if orphan, err := w.isOrphan(e.dir, e.hash, token); err != nil || orphan {
		t.Errorf("orphan, with a lease that cannot be decoded: %v, %v", orphan, err)
	}
}

func TestOneEntryThatCannotBeRetiredKeepsNoOther(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && !testenv.AsResearcher(t) { // root may do anything
		return
	}
	c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
	dirs := map[string]bool{}
	for _, id := range []string{"a", "b", "c", "d"} {
		w := Want{Key: Key{Kind: "bundle", ID: id}}
		path, err := c.Get(t.Context(), w, text("content"))
		if err != nil {
			t.Fatal(err)
		}
		dirs[filepath.Dir(filepath.Dir(path))] = true
	}
	closed := c.entry(Key{Kind: "bundle", ID: "a"}, false).dir
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	done, err := c.Trim(t.Context(), TrimOptions{All: true})
	if err == nil || len(done.Retired) < len(dirs)-1 {
		t.Errorf("retired %d of what lies in %d directories, %v", len(done.Retired), len(dirs), err)
	}
}

// However a record is missed while it goes from place to place.
func TestSweepTakesNothingOfAPinnedKey(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Grace: 1})
	path := got(t, c, "row-1", text("content"))
	e := c.entry(interleavedKey, false)
	w := sweeping{Cache: c}
	if err := os.Remove(e.record()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{false, true} {
		if orphan, err := w.isOrphan(e.dir, e.hash, tokenOf(t, path)); err != nil || orphan != want {
			t.Errorf("orphan: %v, %v; want %v", orphan, err, want)
		}
		if err := c.Unpin(t.Context(), "row-1"); err != nil {
			t.Fatal(err)
		}
	}
}
