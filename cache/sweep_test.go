package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// age makes a file as old as a leftover.
func age(path string) error {
	long := time.Now().Add(-time.Hour)
	return os.Chtimes(path, long, long)
}

// Nothing shows any more which content an unreadable record named.
func TestPinnedContentStaysWhenItsRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Settle: -1, Grace: 1}
	c := openInside(t, dir, o)
	first := got(t, c, "row-1", text("content"))
	if err := os.WriteFile(c.namesOf(interleavedKey, false).record(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if second := got(t, c, "", text("content")); second == first {
		t.Error("the content of a record that cannot be read is in use")
	}
	if err := age(filepath.Dir(first)); err != nil {
		t.Fatal(err)
	}
	retireNone(t, openInside(t, dir, o)) // and sweep
	wantThere(t, first)
}

// A bridge that is told to end keeps its downloads for the next one, as a killed bridge does.
func TestFillWhoseCallersHaveLeftIsResumed(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{})
	w := Want{Key: interleavedKey, Resume: true}
	ctx, leave := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	_, err := c.Get(ctx, w, func(ctx context.Context, tmp string) error {
		defer close(stopped)
		err := os.WriteFile(tmp, []byte("half"), 0o600)
		leave()
		<-ctx.Done()
		return errors.Join(err, ctx.Err())
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-stopped
	path, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error {
		half, err := os.ReadFile(tmp)
		return errors.Join(err, os.WriteFile(tmp, append(half, " and half"...), 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "half and half" {
		t.Errorf("content %q, %v", got, err)
	}
}

func TestContentWhoseSizeWasLostCountsAgain(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	if _, err := c.Get(t.Context(), Want{Key: interleavedKey, Owner: "ann"}, text("content")); err != nil {
		t.Fatal(err)
	}
	sizes, err := c.sizes()
	if err = errors.Join(err, c.dropSizes(sizes)); err != nil || len(sizes) != 1 {
		t.Fatal(sizes, err)
	}
	retireNone(t, c) // and sweep
	if u, err := c.Usage(); err != nil || u.Owners["ann"] < 7 || u.Entries != 1 {
		t.Errorf("it counts %+v, %v", u, err)
	}
}

func TestUsageAfterATrimIsWithoutTheLeftoversThatItCleared(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	_, err := c.Get(t.Context(), Want{Key: interleavedKey, Resume: true}, func(ctx context.Context, tmp string) error {
		return errors.Join(text("half")(ctx, tmp), errors.New("it broke off"))
	})
	if u, usageErr := c.Usage(); err == nil || usageErr != nil || u.Entries != 1 {
		t.Fatalf("%+v, %v, %v", u, err, usageErr)
	}
	if done, err := c.Trim(t.Context(), TrimOptions{All: true}); err != nil || done.Freed < 4 || done.Usage.Entries != 0 {
		t.Errorf("%+v, %v", done, err)
	}
}

// An operator makes the cache smaller while bridges use it.
func TestLimitThatIsSetLaterHolds(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	got(t, c, "", text("content"))
	for size, want := range map[int64]int{0: 0, 1 << 20: 0, 1: 1} {
		c.SetSize(size)
		if done, err := c.Trim(t.Context(), TrimOptions{DryRun: true}); err != nil || len(done.Retired) != want {
			t.Errorf("with %d bytes: %+v, %v; want %d retired", size, done, err, want)
		}
	}
}

// It may be that no running bridge trims the cache. Then the fill that waits for room sweeps it.
func TestFillFindsTheRoomThatADeadFillHasLeft(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Size: 100_000, Settle: -1})
	e, token := c.namesOf(Key{Kind: "bundle", ID: "another"}, false), newToken()
	dead := newSize(e.hash, token, 200_000, "")
	if err := errors.Join(c.makeDir(e.fillDir(token)), c.write(dead), age(e.fillDir(token)), age(c.sizePath(dead.name))); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), Want{Key: interleavedKey, Size: 50_000}, text("content")); err != nil {
		t.Error(err)
	}
}

func TestDirectoryThatWasHalfMadeForAGroupIsSwept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: -1, Grace: 1, Group: true})
	got(t, c, "", text("content"))
	left := filepath.Join(dir, interleavedKey.Kind, probePrefix+newToken())
	if err := errors.Join(os.Mkdir(left, 0o700), age(left)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	wantGone(t, left)
}

// NFS 3 makes a file for O_EXCL in two calls, and a client that is killed between them leaves it with an arbitrary time.
func TestLeftoverWithATimeInTheFutureIsSwept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: -1, Grace: 1})
	got(t, c, "", text("content"))
	left := filepath.Join(c.place(sizesPlace), probePrefix+"1")
	later := time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := errors.Join(os.WriteFile(left, nil, 0o600), os.Chtimes(left, later, later)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), TrimOptions{}); err != nil {
		t.Fatal(err)
	}
	wantGone(t, left)
}

// An NFS client that dies before a removed file is closed leaves the name that it has given to the file.
func TestRemovalThatAnNFSClientDidNotEndIsEnded(t *testing.T) {
	t.Parallel()
	for grace, swept := range map[time.Duration]bool{1: true, time.Hour: false} {
		c := openInside(t, t.TempDir(), Options{Settle: -1, Grace: grace})
		got(t, c, "", text("content"))
		left := filepath.Join(c.place(retiredPlace), ".nfs0000000000a482bf00000002")
		if err := errors.Join(os.WriteFile(left, nil, 0o600), age(left)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Trim(t.Context(), TrimOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(left); errors.Is(err, fs.ErrNotExist) != swept {
			t.Errorf("Grace %s: %v; want that it is swept: %v", grace, err, swept)
		}
	}
}

func TestOneBadRecordDoesNotStopTheSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openInside(t, dir, Options{Settle: -1, Grace: 1})
	path := got(t, c, "", text("content"))
	e := c.namesOf(interleavedKey, false)
	bad, left := c.retiredPath(e.id(tokenOf(t, path))+"~"+newToken()), filepath.Join(dir, probePrefix+"1")
	// EISDIR stands for EIO.
	err := errors.Join(os.Remove(e.record()), os.Mkdir(bad, 0o700), os.WriteFile(left, nil, 0o600), age(left), age(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trim(t.Context(), TrimOptions{}); err == nil {
		t.Error("a record that cannot be read is no error")
	}
	wantGone(t, left)
	wantThere(t, path) // the bad record may name it
}

// A failed fill's leftover is old, and another fill may be resuming it.
func TestSweepTakesNothingWhoseLeaseItCannotRead(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Grace: 1})
	e := c.namesOf(interleavedKey, false)
	token := newToken()
	lease := filepath.Join(c.place(leasesPlace), e.hash)
	if err := errors.Join(c.makeDir(e.fillDir(token)), age(e.fillDir(token)), os.Mkdir(lease, 0o700)); err != nil {
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

func TestRetiredRecordThatCannotBeReadGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := Options{Settle: -1, Grace: 1}
	c := openInside(t, dir, o)
	first := got(t, c, "", text("first"))
	e := c.namesOf(interleavedKey, false)
	out := c.retiredPath(e.id(newToken()) + "~" + newToken())
	if err := errors.Join(os.Rename(e.record(), out), os.Truncate(out, 0)); err != nil {
		t.Fatal(err)
	}
	got(t, c, "", text("second"))
	if err := age(filepath.Dir(first)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second sweep removes files that the first has dropped from its list
		if _, err := openInside(t, dir, o).Trim(t.Context(), TrimOptions{All: true}); err != nil {
			t.Fatal(err)
		}
	}
	wantGone(t, first)
	if left := outNames(t, c); len(left) > 0 {
		t.Errorf("retired are %v", left)
	}
}
