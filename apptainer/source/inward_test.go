package source_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/nametest"
	"github.com/cl-slurm/cl-slurm/internal/outbound"
)

// startInternal starts a service that fails the test if a request reaches it.
func startInternal(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("an internal service was reached: %s %s", r.Method, r.URL)
	}))
	t.Cleanup(s.Close)
	return s
}

// An image's name must not make the login node ask a service of its own network.
func TestImageNameReachesNoInternalService(t *testing.T) {
	t.Parallel()
	internal := startInternal(t)
	port := internal.URL[strings.LastIndexByte(internal.URL, ':'):]
	for _, host := range []string{"127.0.0.1", "localhost"} {
		src := imagetest.Source()
		src.Private = outbound.Places{}
		_, err := src.Resolve(t.Context(), imagetest.Reference(t, host+port+"/x"))
		imagetest.WantError(t, err, false, "registry "+host+port+" cannot be used: ")
		imagetest.WantError(t, err, false, "1 is not a public address, and fetch_private (a worker's --fetch-private) does not list it")
	}
}

// The registry is listed, and the service on another port is not.
func TestRegistryLeadsToNoInternalService(t *testing.T) {
	t.Parallel()
	internal := startInternal(t)
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"manifest": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			http.Redirect(w, r, internal.URL+"/manifest", http.StatusTemporaryRedirect)
			return true
		},
		"layer": func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/blobs/") {
				return false
			}
			http.Redirect(w, r, internal.URL+"/blob", http.StatusTemporaryRedirect)
			return true
		},
		"token": func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+strings.Replace(internal.URL, "127.0.0.1", "localhost", 1)+`/token",service="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			image := reg.Push(t, "x:1", imagetest.Tiny(t, "x"))
			reg.Intercept = answer
			src := imagetest.Source()
			src.Private, src.Hosts = outbound.Places{}, map[string]source.Host{reg.Host: {}}
			got, err := src.Resolve(t.Context(), imagetest.Reference(t, image))
			if err == nil {
				_, err = source.Layers(t.Context(), src, got)
			}
			if err == nil {
				err = source.ReadLayersAtOnce(t.Context(), src, got)
			}
			imagetest.WantError(t, err, false, "registry "+reg.Host+" cannot be used: ")
			imagetest.WantError(t, err, false, "1 is not a public address, and fetch_private (a worker's --fetch-private) does not list it")
		})
	}
}

func TestConfiguredRegistriesAndMirrorsMayBePrivate(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	image := reg.Push(t, "library/x:1", imagetest.Tiny(t, "x"))
	for name, test := range map[string]struct {
		hosts map[string]source.Host
		image string
	}{
		"registry": {hosts: map[string]source.Host{reg.Host: {}}, image: image},
		"mirror":   {hosts: map[string]source.Host{"docker.io": {Mirrors: []string{"http://" + reg.Host}}}, image: "x:1"},
	} {
		src := imagetest.Source()
		src.Private, src.Hosts = outbound.Places{}, test.hosts
		if _, err := src.Resolve(t.Context(), imagetest.Reference(t, test.image)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An engine pulls images itself.
func TestPlaceIsCheckedBeforeAnEnginePulls(t *testing.T) {
	t.Parallel()
	src := source.Source{Hosts: map[string]source.Host{"listed.example.org:5000": {}}, Resolver: nametest.Resolver(t, map[string]netip.Addr{
		"public.example.org": netip.MustParseAddr("192.0.1.1"), "private.example.org": netip.MustParseAddr("10.0.0.1"), "listed.example.org": netip.MustParseAddr("10.0.0.2"),
	})}
	for name, refused := range map[string]bool{
		"127.0.0.1:5000/x": true, "localhost/x": true, "private.example.org/x": true, "listed.example.org/x": true, "listed.example.org:5001/x": true,
		"public.example.org/x": false, "unknown.example.org/x": false, "listed.example.org:5000/x": false,
	} {
		err := src.CheckPlace(t.Context(), imagetest.Reference(t, name))
		if refused {
			imagetest.WantError(t, err, false, "is not a public address")
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
