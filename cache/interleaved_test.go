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

// The tests of this file put one process between two steps of another. Each shows a fault that was
// once there, or would have been.

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

// got gets the key and returns the path of its content.
func got(t *testing.T, c *Cache, h Holder, fill Fill) string {
	t.Helper()
	path, err := c.Get(t.Context(), Want{Key: interleavedKey, Holder: h}, fill)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// tokenOf returns the token of a content.
func tokenOf(t *testing.T, path string) string {
	t.Helper()
	_, token, err := splitID(filepath.Base(filepath.Dir(path)))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// retireAll takes all entries out of use, at least one.
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

// dead returns a process of this host that has ended and left its lease.
func dead(t *testing.T, c *Cache, token string) holderOfLease {
	t.Helper()
	h := c.self
	h.Token, h.Began = token, "1"
	lease, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.place(leasesPlace), c.namesOf(interleavedKey, false).hash)
	if err := os.WriteFile(path, lease, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// A process publishes, and is killed before it releases its lease. Its content is retired before
// another process finds the lease.
func TestWhatADeadProcessHasPublishedIsNotInherited(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
	path := got(t, c, "", text("content"))
	dead(t, c, tokenOf(t, path))
	retireAll(t, c)
	mine := c.self
	mine.Token = newToken()
	if _, _, err := c.tryLease(t.Context(), c.namesOf(interleavedKey, false), mine); err != nil {
		t.Fatal(err)
	}
	wantThere(t, path)
}

func TestNothingIsInheritedWhenTheRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{})
	path := got(t, c, "row-1", text("content"))
	e := c.namesOf(interleavedKey, false)
	h := dead(t, c, tokenOf(t, path))
	// ELOOP stands for EIO.
	if err := errors.Join(os.Rename(e.record(), e.record()+".x"), os.Symlink(filepath.Base(e.record()), e.record())); err != nil {
		t.Fatal(err)
	}
	c.inherit(e, h)
	wantThere(t, path)
}

// A process that is killed after it kept its partial content for the next fill leaves its lease,
// too.
func TestLeftoverOutlivesTheLeaseOfItsFill(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{})
	failed := errors.New("it broke off")
	_, err := c.Get(t.Context(), Want{Key: interleavedKey, Resume: true}, func(ctx context.Context, tmp string) error {
		return errors.Join(text("half")(ctx, tmp), failed)
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	e := c.namesOf(interleavedKey, false)
	c.inherit(e, dead(t, c, newToken()))
	if _, err := os.Stat(e.content(leftToken)); err != nil {
		t.Errorf("the leftover is gone: %v", err)
	}
}

func TestRecordIsRetiredUnderTheNameOfItsContent(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
	token := tokenOf(t, got(t, c, "", text("content")))
	e := c.namesOf(interleavedKey, false)
	for range 16 { // left by killed fills, and some of them listed before the content
		wreck := newToken()
		if err := errors.Join(os.Mkdir(e.fillDir(wreck), 0o700), c.write(newSize(e.hash, wreck, 1<<30, ""))); err != nil {
			t.Fatal(err)
		}
	}
	retireAll(t, c)
	if out := outNames(t, c); len(out) != 1 || !strings.Contains(out[0], token) {
		t.Errorf("the record of %s is %v now", token, out)
	}
}

func TestOneEntryThatCannotBeRetiredStopsNoOther(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 && !testenv.AsResearcher(t) { // root may read every file
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
	closed := c.namesOf(Key{Kind: "bundle", ID: "a"}, false).dir
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	done, err := c.Trim(t.Context(), TrimOptions{All: true})
	if err == nil || len(done.Retired) < len(dirs)-1 {
		t.Errorf("retired %d of what lies in %d directories, %v", len(done.Retired), len(dirs), err)
	}
}

func TestContentThatTheDiskLosesEachTimeIsAnError(t *testing.T) {
	t.Parallel()
	lost, fills := "", 0
	c := openInside(t, t.TempDir(), Options{Settle: -1, Quota: func(string) int64 { // called between the fill and the publication
		if err := os.RemoveAll(lost); lost != "" && err != nil {
			t.Error(err)
		}
		return 0
	}})
	path, err := c.Get(t.Context(), Want{Key: interleavedKey, Holder: "row-1"}, func(ctx context.Context, tmp string) error {
		fills++
		lost = tmp
		return text("content")(ctx, tmp)
	})
	if !errors.Is(err, ErrDamaged) || fills != 1+triesOfPin {
		t.Errorf("%q, %v after %d fills", path, err, fills)
	}
}

// A content that is damaged, or retired while a Get pinned it, stays for its holder. The next Get
// makes another.
func TestTwoContentsOfAKeyMayExistAtOnce(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	e := c.namesOf(interleavedKey, false)
	first := got(t, c, "row-1", text("first"))
	retireOne(t, c, e, tokenOf(t, first))
	second := got(t, c, "row-2", text("second"))
	if second == first {
		t.Fatal("the retired content came back")
	}
	retireNone(t, c)
	wantThere(t, first)
	wantThere(t, second)
	if list, err := c.Retired(); err != nil || len(list) != 1 || list[0].Path != first || len(list[0].Pins) != 1 || list[0].Pins[0] != "row-1" {
		t.Errorf("retired are %+v, %v", list, err)
	}
	if err := c.Unpin(t.Context(), "row-1"); err != nil {
		t.Fatal(err)
	}
	retireNone(t, c)
	wantGone(t, first)
	wantThere(t, second)
}

func retireNone(t *testing.T, c *Cache) {
	t.Helper()
	if done, err := c.Trim(t.Context(), TrimOptions{}); err != nil || len(done.Retired) > 0 {
		t.Fatalf("retired %v, %v", done.Retired, err)
	}
}

func wantGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v; want it gone", path, err)
	}
}

// A sweeper runs during a fill that was stopped for longer than its lease lasts.
func TestFillThatWasSweptBeginsAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, other := openInside(t, dir, Options{Settle: -1}), openInside(t, dir, Options{Settle: -1})
	e := c.namesOf(interleavedKey, false)
	fills := 0
	path := got(t, c, "row-1", func(ctx context.Context, tmp string) error {
		fills++
		if fills == 1 {
			if unused, err := other.withdraw(e, tokenOf(t, tmp)); err != nil || !unused {
				t.Errorf("unused: %v, %v", unused, err)
			}
			if err := removeTree(filepath.Dir(tmp)); err != nil {
				t.Error(err)
			}
			if err := os.Mkdir(filepath.Dir(tmp), 0o700); err != nil { // a fill may do so
				t.Error(err)
			}
		}
		return text("content")(ctx, tmp)
	})
	wantThere(t, path)
	if fills != 2 {
		t.Errorf("%d fills, want 2", fills)
	}
}

// A link may succeed although its client got an error, and its content may be retired before the
// client checks.
func TestContentThatWasPublishedForAMomentIsNotAbandoned(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: time.Hour})
	e := c.namesOf(interleavedKey, false)
	token := tokenOf(t, got(t, c, "row-1", text("content")))
	retireOne(t, c, e, token)
	if unused, err := c.withdraw(e, token); err != nil || unused {
		t.Errorf("unused: %v, %v", unused, err)
	}
	if err := c.Unpin(t.Context(), "row-1"); err != nil {
		t.Fatal(err)
	}
	if unused, err := c.withdraw(e, token); err != nil || unused {
		t.Errorf("without a pin, unused: %v, %v", unused, err)
	}
}

func retireOne(t *testing.T, c *Cache, e entryNames, token string) {
	t.Helper()
	if err := c.retire(e, token); err != nil {
		t.Fatal(err)
	}
}

// An older version pinned keys, and may have died while it restored or removed a content.
func TestCacheOfAnOlderVersionIsAdopted(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	e := c.namesOf(interleavedKey, false)
	first := got(t, c, "", text("first"))
	if err := c.pin(t.Context(), e.hash, "row-1"); err != nil {
		t.Fatal(err)
	}
	old := c.retiredPath(e.id(tokenOf(t, first)) + "~" + newToken() + ".spent")
	if err := os.Rename(e.record(), old); err != nil {
		t.Fatal(err)
	}
	second := got(t, c, "", text("second"))
	if done, err := c.Trim(t.Context(), TrimOptions{All: true}); err != nil || len(done.Retired) > 0 {
		t.Errorf("retired %v, %v", done.Retired, err)
	}
	wantThere(t, first)
	wantThere(t, second)
	if err := c.Unpin(t.Context(), "row-1"); err != nil {
		t.Fatal(err)
	}
	retireAll(t, c)
	wantGone(t, first)
	if left := outNames(t, c); len(left) > 0 {
		t.Errorf("retired are %v", left)
	}
}

// The pin of a person, and that of a kept image, protects the current content of the key.
func TestPinOfAKeyMovesToItsCurrentContent(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	e := c.namesOf(interleavedKey, false)
	first := got(t, c, "", text("first"))
	if err := c.Pin(t.Context(), interleavedKey, false, "user-ann"); err != nil {
		t.Fatal(err)
	}
	retireOne(t, c, e, tokenOf(t, first)) // as damaged
	retireNone(t, c)
	wantThere(t, first)
	second := got(t, c, "", text("second"))
	if done, err := c.Trim(t.Context(), TrimOptions{All: true}); err != nil || len(done.Retired) > 0 {
		t.Errorf("retired %v, %v", done.Retired, err)
	}
	retireNone(t, c)
	wantGone(t, first)
	wantThere(t, second)
	if pins, err := c.Pins(); err != nil || len(pins) != 1 || pins[0].Holder != "user-ann" {
		t.Errorf("pins %v, %v", pins, err)
	}
	if err := c.DropPin(t.Context(), interleavedKey, false, "user-ann"); err != nil {
		t.Fatal(err)
	}
	retireAll(t, c)
	wantGone(t, second)
}

// A late link may publish a retired content again. The content then counts as used, and is retired
// a second time.
func TestContentThatALateLinkPublishedAgainCanBeRetired(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1})
	e := c.namesOf(interleavedKey, false)
	path := got(t, c, "", text("content"))
	retireOne(t, c, e, tokenOf(t, path))
	if err := os.Link(outNames(t, c)[0], e.record()); err != nil {
		t.Fatal(err)
	}
	retireNone(t, c)
	wantThere(t, path)
	retireAll(t, c)
	wantGone(t, path)
	if left := outNames(t, c); len(left) > 0 {
		t.Errorf("retired are %v", left)
	}
}

// Otherwise a full quota would wait for ever.
func TestRetiredContentThatIsPinnedCountsAsUsed(t *testing.T) {
	t.Parallel()
	c := openInside(t, t.TempDir(), Options{Settle: -1, Size: 66_000})
	block := text(strings.Repeat(".", 20_000))
	first := got(t, c, "row-1", block)
	retireOne(t, c, c.namesOf(interleavedKey, false), tokenOf(t, first))
	for _, id := range []string{"b", "c"} {
		if _, err := c.Get(t.Context(), Want{Key: Key{Kind: "bundle", ID: id}, Size: 20_000}, block); err != nil {
			t.Fatal(err)
		}
	}
	done, err := c.Trim(t.Context(), TrimOptions{})
	if err != nil || len(done.Retired) != 1 {
		t.Errorf("retired %v, %v; want one", done.Retired, err)
	}
	wantThere(t, first)
}
