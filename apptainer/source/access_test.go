package source_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// gate demands logins of a registry's clients, with HTTP's basic scheme or with tokens that it
// signs itself and that expire.
type gate struct {
	bearer bool
	uses   int // requests for each token; 0 means no limit

	mu         sync.Mutex
	tokens     map[string]*token
	identities map[string]string // users by identity token
	asked      []string          // METHOD PATH user
}

type token struct {
	user, scope string
	left        int
}

// passwords are those of all users. Only alice may read private/….
func passwords() map[string]string { return map[string]string{"alice": "a-s3cret", "bob": "b-s3cret"} }

func (g *gate) seen() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.asked...)
}

// guard puts the gate before a registry that already has its images.
func (g *gate) guard(reg *imagetest.Registry) {
	g.tokens = map[string]*token{}
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if r.URL.Path == "/token" {
			g.sign(w, r)
			return true
		}
		user, ok := g.user(r)
		g.asked = append(g.asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+user))
		private := strings.HasPrefix(r.URL.Path, "/v2/private/")
		switch {
		case r.URL.Path == "/v2/" && user == "", !ok, private && user == "":
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			if g.bearer {
				w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="x"`, reg.Host))
			}
			w.WriteHeader(http.StatusUnauthorized)
		case private && user != "alice":
			w.WriteHeader(http.StatusForbidden)
		default:
			return false
		}
		return true
	}
}

// sign answers with a token, as in distribution's docs/spec/auth/token.md.
func (g *gate) sign(w http.ResponseWriter, r *http.Request) {
	user, password, given := r.BasicAuth()
	answer := map[string]string{}
	if r.Method == http.MethodPost { // with an identity, which is valid once
		user, given = g.identities[r.FormValue("refresh_token")], true
		password = passwords()[user]
		delete(g.identities, r.FormValue("refresh_token"))
		next := fmt.Sprintf("i-s3cret-%d", len(g.tokens))
		g.identities[next] = user
		answer["refresh_token"] = next
	}
	if given && (user == "" || passwords()[user] != password) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	name := fmt.Sprintf("t-s3cret-%d", len(g.tokens))
	g.tokens[name] = &token{user: user, scope: r.FormValue("scope"), left: g.uses}
	answer["access_token"] = name
	_ = json.NewEncoder(w).Encode(answer)
}

// user returns the user of a request, or "" without a login. ok is false for a wrong login.
func (g *gate) user(r *http.Request) (user string, ok bool) {
	if !g.bearer {
		user, password, given := r.BasicAuth()
		return user, !given || passwords()[user] == password
	}
	name, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !given {
		return "", true
	}
	t := g.tokens[name]
	repository, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
	repository, _, _ = strings.Cut(repository, "/blobs/")
	if t == nil || repository != "" && t.scope != "repository:"+repository+":pull" {
		return "", false
	}
	if g.uses > 0 {
		if t.left == 0 {
			return "", false
		}
		t.left--
	}
	return t.user, true
}

func as(tb testing.TB, host, user, password string) source.Source {
	tb.Helper()
	r := imagetest.Source()
	if user != "" {
		r.Logins = logins(tb, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, basic(user, password)))
		r.Logins.Files[0].Owner = user
	}
	return r
}

func TestPrivateImageNeedsALoginThatMayReadIt(t *testing.T) {
	t.Parallel()
	for name, bearer := range map[string]bool{"basic": false, "bearer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			private, public := imagetest.Reference(t, reg.Push(t, "private/x", imagetest.Tiny(t, "p"))), imagetest.Reference(t, reg.Push(t, "public/x", imagetest.Tiny(t, "q")))
			g := &gate{bearer: bearer}
			g.guard(reg)
			alice, bob, nobody := as(t, reg.Host, "alice", "a-s3cret"), as(t, reg.Host, "bob", "b-s3cret"), as(t, reg.Host, "", "")
			img, err := alice.Resolve(t.Context(), private)
			if err != nil || !img.Private {
				t.Fatalf("resolved to %+v, %v", img, err)
			}
			if again, err := alice.Refresh(t.Context(), img); err != nil || again != img {
				t.Errorf("refreshed to %+v, %v", again, err)
			}
			if layers, err := source.Layers(t.Context(), alice, img); err != nil || len(layers) != 1 {
				t.Errorf("%d layers, %v", len(layers), err)
			}
			_, err = bob.Refresh(t.Context(), img)
			imagetest.WantError(t, err, false, "the registry denies access with the login of bob")
			byDigest := imagetest.Reference(t, img.PinnedReference())
			_, err = bob.Resolve(t.Context(), byDigest)
			imagetest.WantError(t, err, false, "the registry denies access with the login of bob")
			_, err = nobody.Refresh(t.Context(), img)
			imagetest.WantError(t, err, false, "the image is private or does not exist, and there is no login for "+reg.Host)
			_, err = as(t, reg.Host, "alice", "wrong-s3cret").Resolve(t.Context(), private)
			imagetest.WantError(t, err, false, "the registry denies access with the login of alice")
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v has a password in it", err)
			}
			if img, err = nobody.Resolve(t.Context(), public); err != nil || img.Private {
				t.Errorf("the public one resolved to %+v, %v", img, err)
			}
		})
	}
}

func TestRefreshIsNotCountedAsAPull(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	list := map[string]v1.Image{"linux/amd64": imagetest.Tiny(t, "1"), "linux/arm64": imagetest.Tiny(t, "2")}
	ref := imagetest.Reference(t, reg.PushIndex(t, "public/x", list))
	img := imagetest.Resolve(t, ref.String())
	g := &gate{}
	g.guard(reg)
	again, err := imagetest.Source().Refresh(t.Context(), img)
	if err != nil || again != img {
		t.Errorf("refreshed to %+v, %v; want %+v", again, err, img)
	}
	pinned := img
	pinned.Reference, pinned.Listed = imagetest.Reference(t, img.PinnedReference()), img.Digest
	if again, err := imagetest.Source().Refresh(t.Context(), pinned); err != nil || again != pinned {
		t.Errorf("refreshed to %+v, %v; want %+v", again, err, pinned)
	}
	for _, asked := range g.seen() {
		if strings.HasPrefix(asked, "GET") && asked != "GET /v2/" {
			t.Errorf("asked %s", asked)
		}
	}
	reg.Intercept = nil
	list["linux/amd64"], list["linux/arm64"] = imagetest.Tiny(t, "3"), imagetest.Tiny(t, "4")
	reg.PushIndex(t, "public/x", list)
	if again, err = imagetest.Source().Refresh(t.Context(), img); err != nil || again.Listed == img.Listed || again.Digest == img.Digest {
		t.Errorf("after a change refreshed to %+v, %v", again, err)
	}
}

func TestRegistryWithoutHEADGetsTheRequestOfAPull(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]func(w http.ResponseWriter){
		"not allowed": func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"not found":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"no digest":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img := imagetest.Resolve(t, reg.Push(t, "x", imagetest.Tiny(t, "x")))
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodHead {
					return false
				}
				head(w)
				return true
			}
			if again, err := imagetest.Source().Refresh(t.Context(), img); err != nil || again != img {
				t.Errorf("refreshed to %+v, %v; want %+v", again, err, img)
			}
		})
	}
}

func TestExpiredTokensAreRequestedAgain(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	var layers []v1.Layer
	for i := range 5 {
		layers = append(layers, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular(fmt.Sprint(i), "x"))))
	}
	ref := imagetest.Reference(t, reg.Push(t, "private/x", imagetest.Image(t, v1.Config{}, layers...)))
	g := &gate{bearer: true, uses: 1}
	g.guard(reg)
	alice := as(t, reg.Host, "alice", "a-s3cret")
	img, err := alice.Resolve(t.Context(), ref)
	must(t, err)
	descriptors, err := source.Layers(t.Context(), alice, img)
	if err != nil || len(descriptors) != 5 {
		t.Fatalf("%d layers, %v", len(descriptors), err)
	}
	for _, d := range descriptors {
		if data, err := source.ReadBlob(t.Context(), alice, img, d, 0); err != nil || int64(len(data)) != d.Size {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
}

func TestIdentityTokensThatChangeAreFollowed(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	var layers []v1.Layer
	for i := range 8 {
		layers = append(layers, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular(fmt.Sprint(i), "x"))))
	}
	ref := imagetest.Reference(t, reg.Push(t, "private/x", imagetest.Image(t, v1.Config{}, layers...)))
	g := &gate{bearer: true, uses: 1, identities: map[string]string{"first": "alice", "second": "alice"}}
	g.guard(reg)
	with := func(identity string) source.Source {
		r := imagetest.Source()
		r.Logins = logins(t, fmt.Sprintf(`{"auths": {%q: {"identitytoken": %q}}}`, reg.Host, identity))
		return r
	}
	img, err := with("first").Resolve(t.Context(), ref)
	if err != nil || !img.Private {
		t.Fatalf("resolved to %+v, %v", img, err)
	}
	if err := source.ReadLayersAtOnce(t.Context(), with("second"), img); err != nil {
		t.Error(err)
	}
	_, err = with("second").Resolve(t.Context(), ref)
	imagetest.WantError(t, err, false, "denies access with the login of the site")
}
