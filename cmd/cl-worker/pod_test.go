package main

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
)

// The settings that docs/kubernetes.md names are the least with which a pod runs containers: without one of them,
// cl-worker probe says which one is missing. A namespace of the Pod Security level baseline takes all these pods.
func TestProbeInAPodSaysWhichSettingItLacks(t *testing.T) {
	t.Parallel()
	namespace := kubetest.Namespace(t)
	kubetest.Kubectl(t, "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=baseline")
	files := append(kubetest.Programs(t, "bwrap", "squashfuse_ll", "unsquashfs", "newuidmap", "newgidmap", "slirp4netns"),
		kubetest.Self(t, "/usr/bin/cl-worker"), imagetest.Regular("etc/subuid", "root:1:65535\n"), imagetest.Regular("etc/subgid", "root:1:65535\n"))
	for i, f := range files {
		if f.Name == "usr/bin/newuidmap" || f.Name == "usr/bin/newgidmap" {
			files[i].Mode = 0o4755
		}
	}
	image := kubetest.Image(t, files...)

	unmasked := map[string]any{"procMount": "Unmasked"}
	with := func(more map[string]any) map[string]any {
		more["procMount"] = "Unmasked"
		return more
	}
	filtered := map[string]any{"type": "RuntimeDefault"}
	none := map[string]any{"drop": []string{"ALL"}}
	const covered = "the pod needs hostUsers: false, and its container procMount: Unmasked"
	const unpacked = "\nbuiltin: no Apptainer can be used, and the image can be unpacked: this pod cannot open /dev/fuse"
	for name, tt := range map[string]struct {
		pod     kubetest.Pod
		refused bool
		want    []string
	}{
		"all":                         {kubetest.Pod{OwnUsers: true, Security: unmasked, Limits: map[string]string{"smarter-devices/fuse": "1", "smarter-devices/net_tun": "1"}}, false, []string{"\nnetwork          yes", "\nbuiltin: nothing else was asked for", "\n/dev/fuse        yes", "\nsubordinate ids  yes  1-65535"}},
		"no /dev/fuse":                {kubetest.Pod{OwnUsers: true, Security: unmasked}, false, []string{unpacked, "a device plugin of its node has to offer it"}},
		"root without new privileges": {kubetest.Pod{OwnUsers: true, Security: with(map[string]any{"allowPrivilegeEscalation": false})}, false, []string{unpacked, "\nsubordinate ids  yes  1-65535"}},
		"no privileges":               {kubetest.Pod{OwnUsers: true, Security: with(map[string]any{"runAsUser": 1000, "runAsGroup": 1000, "capabilities": none, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true})}, false, []string{unpacked, "no_new_privs"}},
		"nothing":                     {kubetest.Pod{}, true, []string{covered}},
		"own users":                   {kubetest.Pod{OwnUsers: true}, true, []string{covered}},
		"a filter":                    {kubetest.Pod{OwnUsers: true, Security: with(map[string]any{"seccompProfile": filtered})}, true, []string{"seccompProfile: {type: Unconfined}"}},
		"root without capabilities":   {kubetest.Pod{OwnUsers: true, Security: with(map[string]any{"capabilities": none})}, true, []string{"lacks the capability SETFCAP"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.pod.Image, tt.pod.Command = image, []string{"cl-worker", "probe", "--scratch", kubetest.Scratch}
			end := kubetest.Run(t, namespace, tt.pod)
			if end.Succeeded == tt.refused {
				t.Errorf("succeeded: %v", end.Succeeded)
			}
			if tt.refused {
				tt.want = append(tt.want, "this pod can run no container: ", "; or each bundle has to get a pod of its own")
			}
			for _, want := range tt.want {
				if !strings.Contains("\n"+end.Output, want) {
					t.Errorf("it does not say %q:\n%s", want, end.Output)
				}
			}
		})
	}
}
