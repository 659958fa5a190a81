package kubetest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/kubetest"
)

func TestPodEndsWithItsCommandsOutput(t *testing.T) {
	t.Parallel()
	namespace := kubetest.Namespace(t)
	image := kubetest.Image(t, kubetest.Programs(t, "id")...)
	if end := kubetest.Run(t, namespace, kubetest.Pod{Image: image, Command: []string{"sh", "-c", "id -u; echo there >" + kubetest.Scratch + "/file"}}); !end.Succeeded || end.Output != "0\n" {
		t.Errorf("%+v", end)
	}
	if end := kubetest.Run(t, namespace, kubetest.Pod{Image: image, Command: []string{"sh", "-c", "exit 3"}}); end.Succeeded {
		t.Errorf("%+v", end)
	}
}

// A pod of its own users is root, and an unprivileged id of its node.
func TestRootOfAPodWithItsOwnUsersIsNotRootOfTheNode(t *testing.T) {
	t.Parallel()
	namespace := kubetest.Namespace(t)
	end := kubetest.Run(t, namespace, kubetest.Pod{Image: kubetest.Image(t, kubetest.Programs(t, "cat")...), OwnUsers: true, Command: []string{"cat", "/proc/self/uid_map"}})
	ids := strings.Fields(end.Output)
	if len(ids) != 3 || ids[0] != "0" || ids[1] == "0" || ids[2] != "65536" {
		t.Errorf("%+v", end)
	}
}

func TestGPUsAreGivenToPods(t *testing.T) {
	t.Parallel()
	namespace := kubetest.Namespace(t)
	end := kubetest.Run(t, namespace, kubetest.Pod{
		Image: kubetest.Image(t, kubetest.Programs(t, "printenv")...), Limits: map[string]string{"nvidia.com/gpu": "2"},
		Command: []string{"sh", "-c", `cd /dev; echo nvidia?; printenv NVIDIA_VISIBLE_DEVICES`},
	})
	lines := strings.Split(end.Output, "\n")
	files, named := strings.Fields(lines[0]), slices.Sorted(strings.SplitSeq(lines[1], ","))
	if !end.Succeeded || len(files) != 2 || !slices.Equal(files, named) {
		t.Errorf("%+v", end)
	}
}
