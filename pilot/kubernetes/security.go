package kubernetes

import corev1 "k8s.io/api/core/v1"

// userID is the user of the worker's image (scripts/workerimage). A number has to be named, because the kubelet cannot
// know whether an image's user is root.
const userID = 1000

// podSecurity returns the rights of a pod: an ordinary user. On a volume new files belong to the user's group. Without a
// name, nodes decide about the filter of system calls, and most have none for pods; the Pod Security Standard baseline
// permits no pod that names Unconfined.
func (s Settings) podSecurity() *corev1.PodSecurityContext {
	yes, id := true, int64(userID)
	c := &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id}
	switch {
	case s.RunsInPods:
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	case s.Unconfined:
		c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
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
// without covered parts, which the API server permits only in a pod with a user namespace (docs/kubernetes.md).
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
