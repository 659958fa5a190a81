package provenance

import (
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// TestSourcesAreUUIDs: anybody may give a bundle a tag that only looks like that of a copy.
func TestSourcesAreUUIDs(t *testing.T) {
	t.Parallel()
	uuid := codalab.NewUUID()
	got := sources(codalab.Metadata{"source_url": "https://x", "tags": []string{codalab.CopyTag + "./", codalab.CopyTag + uuid, codalab.CopyTag}})
	if !slices.Equal(got, []string{"https://x", uuid}) {
		t.Errorf("the sources are %q", got)
	}
}
