package kubernetes

import corev1 "k8s.io/api/core/v1"

// userID is the user of the worker's image (scripts/workerimage). A number has to be named, because the kubelet cannot
// know whether an image's user is root.
const userID = 1000

// podSecurity returns the rights of a pod: an ordinary user, whose containers are in a user namespace of their own unless
// bundles have pods of their own. On a volume new files belong to the user's group.
func (s Settings) podSecurity() *corev1.PodSecurityContext {
	yes, id := true, int64(userID)
	c := &corev1.PodSecurityContext{
		RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if !s.RunsInPods {
		c.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
	}
	return c
}

// hostUsers returns false if the pod needs a user namespace of its own; else nil, which leaves it to the cluster.
func (s Settings) hostUsers() *bool {
	if s.RunsInPods {
		return nil
	}
	no := false
	return &no
}

// containerSecurity returns the rights of the worker's container: no privileges and no capabilities. To run bundles in
// containers of its own, the worker makes user namespaces and mounts /proc in them. For that the kernel requires a /proc
// without covered parts, and the default filter of system calls has to be off (docs/kubernetes.md). The API server
// allows such a /proc only in a pod with a user namespace.
func (s Settings) containerSecurity() *corev1.SecurityContext {
	no := false
	c := &corev1.SecurityContext{
		Privileged: &no, AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if !s.RunsInPods {
		unmasked := corev1.UnmaskedProcMount
		c.ProcMount = &unmasked
	}
	return c
}
