package provenance

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// The tags that cl run --upload gives a run and the bundle of its directory.
const (
	UploadTag = "upload=" // and the digest of the directory, of the bundle alone
	CommitTag = codalab.CommitTag
	BranchTag = codalab.BranchTag
	DirtyTag  = "git-dirty"
)

// DifferenceName names the file with the uncommitted difference in the bundle of a directory.
const DifferenceName = ".cl-difference.patch"

// tagged returns the rest of the first tag with this prefix; empty if there is none.
func tagged(tags []string, prefix string) string {
	for _, tag := range tags {
		if rest, ok := strings.CutPrefix(tag, prefix); ok {
			return rest
		}
	}
	return ""
}
