package images

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// In a group's cache, users other than the bundles' owners can read its files.
func TestImageThatTookALoginIsNotSharedWithTheGroup(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("secret:1", "one")
	alice := "alice"
	s.only.Store(&alice)
	im := s.images("")
	var err error
	im.Cache, err = cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Group: true, Settle: -1})
	must(t, err)
	s.logins(im, "alice")
	private, err := s.stage(im, "alice", image)
	must(t, err)
	if sharedWithGroup(t, private.SIF) {
		t.Error("the group may read what alice alone may have")
	}
	s.only.Store(nil)
	s.now.Add(3600)
	public, err := s.stage(im, "bob", image)
	must(t, err)
	if !sharedWithGroup(t, public.SIF) || public.SIF == private.SIF {
		t.Errorf("%s, which anybody may have, is not shared", public.SIF)
	}
	// When the image needs a login again, the image that was kept for all is not used.
	_, err = im.Keep(t.Context(), wantedImage(t, image), func(transfer.Progress) {})
	must(t, err)
	s.only.Store(&alice)
	s.now.Add(3600)
	again, err := s.stage(im, "alice", image)
	if err != nil || again.SIF != private.SIF {
		t.Errorf("%+v, %v; want alice's own %s", again, err, private.SIF)
	}
}

// An owner's login is used before the site's, even if the site has just asked with its own.
func TestOwnersLoginCountsBeforeTheSites(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("secret:1", "one")
	operator := "operator"
	s.only.Store(&operator)
	im := s.images("")
	im.Converter.Source.Logins.Files = []source.LoginFile{{Path: s.login(t.TempDir(), operator), Owner: "the site"}}
	s.logins(im, "bob")
	_, err := s.stage(im, "alice", image)
	must(t, err)
	_, err = s.stage(im, "bob", image)
	refused(t, err, "denies access", false)
}

// login writes a Docker configuration with a user's login.
func (s *imageSite) login(dir, user string) (path string) {
	path = filepath.Join(dir, user+".json")
	login := base64.StdEncoding.EncodeToString([]byte(user + ":secret"))
	must(s.t, os.WriteFile(path, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, s.registry.Host, login), 0o600))
	return path
}

// logins lets images log in as the owner of a bundle, if the owner has given a login.
func (s *imageSite) logins(im *Images, owners ...string) {
	dir := s.t.TempDir()
	for _, owner := range owners {
		s.login(dir, owner)
	}
	im.Login = func(owner string, _ source.Reference) (source.Source, string) {
		r := im.Converter.Source
		if !slices.Contains(owners, owner) {
			return r, ""
		}
		r.Logins = r.Logins.Of(dir, owner)
		return r, owner
	}
}

// The SIF is in the cache and the digest is known, but owners whom the registry refuses get
// neither.
func TestPrivateImageNeedsTheOwnersLogin(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("secret:1", "one")
	alice := "alice"
	s.only.Store(&alice)
	im := s.images("")
	s.logins(im, "alice", "bob")
	first, err := s.stage(im, "alice", image)
	must(t, err)
	for _, owner := range []string{"bob", "carol"} {
		_, err := s.stage(im, owner, image)
		refused(t, err, "denies access", false)
		_, err = s.stage(im, owner, first.PinnedReference)
		refused(t, err, "denies access", false)
	}
	s.only.Store(nil)
	s.now.Add(5)
	blobs := s.blobs.Load()
	second, err := s.stage(im, "bob", image)
	if err != nil || second.SIF != first.SIF || s.blobs.Load() != blobs {
		t.Errorf("once it is allowed: %v, %v, %d blobs more", second, err, s.blobs.Load()-blobs)
	}
	// The registry is asked once for a public image, with any login.
	asked := s.manifests.Load()
	for _, owner := range []string{"alice", "bob", "carol"} {
		_, err := s.stage(im, owner, image)
		must(t, err)
	}
	if more := s.manifests.Load() - asked; more > 1 { // alice's own answer was older
		t.Errorf("the registry was asked %d times more", more)
	}
}

// A bundle does not get an image that needs credentials while the registry does not answer.
func TestPrivateKeptImageIsNotUsedWhileItsRegistryIsDown(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:1", "one")
	im := s.images("")
	operator := "operator"
	s.only.Store(&operator)
	im.Converter.Source.Logins.Files = []source.LoginFile{{Path: s.login(t.TempDir(), operator), Owner: "the site"}}
	_, err := im.Keep(t.Context(), wantedImage(t, image), func(transfer.Progress) {})
	must(t, err)
	s.now.Add(3600)
	s.down.Store(true)
	_, err = s.stage(im, "alice", image)
	refused(t, err, "in trouble", true)
}
