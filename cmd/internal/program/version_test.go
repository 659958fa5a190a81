package program

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
)

func TestEachVersionIsATagOfAnImage(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "v1.2.3", "v1.2.3-rc.1": "v1.2.3-rc.1", "(devel)": "devel",
		"v0.0.0-20261127223104-0976e4c1ab6c+dirty": "v0.0.0-20261127223104-0976e4c1ab6c-dirty",
	} {
		got := imageTag(version)
		if _, err := name.NewTag("localhost/cl-worker:"+got, name.StrictValidation); err != nil || got != want {
			t.Errorf("%s: %s, %v", version, got, err)
		}
	}
}
