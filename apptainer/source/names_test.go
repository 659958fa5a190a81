package source_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// A broken name service, or one of another network, answers "no such host" for every name. That
// does not mean that the image does not exist.
func TestUnknownHostIsFinalOnlyWhileAnotherNameIsFound(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		names     []string // the names that the name service knows
		known     []string
		hosts     map[string]source.Host
		transient bool
	}{
		"server's name":          {names: []string{"server.site"}, known: []string{"server.site:2900"}},
		"another registry":       {names: []string{"registry.site"}, hosts: map[string]source.Host{"registry.site:5000": {}}},
		"Docker Hub":             {names: []string{"index.docker.io"}},
		"no name":                {known: []string{"server.site"}, hosts: map[string]source.Host{"registry.site": {}}, transient: true},
		"a name nobody asks for": {names: []string{"elsewhere.site"}, known: []string{"server.site"}, transient: true},
		"addresses tell nothing": {known: []string{"127.0.0.1:2900", "[::1]:2900", "[::1]", "::1", "localhost"}, transient: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := imagetest.Source()
			src.Known, src.Hosts = test.known, test.hosts
			src.Resolver = resolverOf(t, test.names...)
			src.Transport = &http.Transport{DialContext: (&net.Dialer{Resolver: src.Resolver}).DialContext}
			_, err := src.Resolve(t.Context(), imagetest.Reference(t, "registry.mistyped/x"))
			imagetest.WantError(t, err, test.transient, "registry registry.mistyped cannot be reached: ")
			imagetest.WantError(t, err, test.transient, "no such host")
			if test.transient {
				imagetest.WantError(t, err, true, "no other name is found either")
			}
		})
	}
}

// A registry may redirect to a host that the name service does not find.
func TestUnknownHostOfARedirectionIsFinalUnderTheSameCondition(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/" {
			return false
		}
		http.Redirect(w, r, "http://blobs.site/x", http.StatusTemporaryRedirect)
		return true
	}
	for _, transient := range []bool{true, false} {
		src := imagetest.Source()
		var names []string
		if !transient {
			names = []string{"server.site"}
		}
		src.Known, src.Resolver = []string{"server.site"}, resolverOf(t, names...)
		src.Transport = &http.Transport{DialContext: (&net.Dialer{Resolver: src.Resolver}).DialContext}
		_, err := src.Resolve(t.Context(), imagetest.Reference(t, reg.Host+"/x"))
		imagetest.WantError(t, err, transient, "no such host")
	}
}
