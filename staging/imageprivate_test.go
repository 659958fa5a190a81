package staging_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging"
)

// In a cache that a group shares, others than bundles' owners read its files.
func TestImageThatTookALoginIsNotSharedWithTheGroup(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("secret:1", "one")
	alice := "alice"
	s.only.Store(&alice)
	im := s.images("")
	var err error
	im.Cache, err = cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Group: true, Settle: -1})
	ok(t, err)
	s.logins(im, "alice")
	shared := func(path string) bool {
		t.Helper()
		info, err := os.Stat(filepath.Dir(path))
		ok(t, err)
		return info.Mode().Perm()&0o050 == 0o050
	}
	private, err := s.stage(im, "alice", image)
	ok(t, err)
	if shared(private.Image) {
		t.Error("the group may read what alice alone may have")
	}
	s.only.Store(nil)
	s.now.Add(3600)
	public, err := s.stage(im, "bob", image)
	ok(t, err)
	if !shared(public.Image) || public.Image == private.Image {
		t.Errorf("%s, which anybody may have, is not shared", public.Image)
	}
	// Once it takes a login again, what was kept for all is not counted on.
	_, err = im.Keep(t.Context(), wantedImage(t, image), func(staging.ImageProgress) {})
	ok(t, err)
	s.only.Store(&alice)
	s.now.Add(3600)
	again, err := s.stage(im, "alice", image)
	if err != nil || again.Image != private.Image {
		t.Errorf("%+v, %v; want alice's own %s", again, err, private.Image)
	}
}

// An owner's login counts before the site's, also where the site's has asked just
// now.
func TestAnswerToTheSitesLoginIsNotForWhoHasAnother(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("secret:1", "one")
	operator := "operator"
	s.only.Store(&operator)
	im := s.images("")
	im.Converter.Registry.Logins.Files = []apptainer.LoginFile{{Path: s.login(t.TempDir(), operator), Whose: "the site"}}
	s.logins(im, "bob")
	_, err := s.stage(im, "alice", image)
	ok(t, err)
	_, err = s.stage(im, "bob", image)
	refused(t, err, "denies access", false)
}
