// Package pods runs each container as a pod of a Kubernetes cluster, next to its caller's own pod.
//
//	caller                         Runtime.Run
//	┆  API server ──► kubelet      the pod has one container, of the requested image
//	┆  └─ container-enter          its first process (package enter), from the shared volume
//	┆     └─ the command
//	└─ files on the shared volume  the order and the beats of the caller, the report, the output
//
// Caller and pod share the volumes of the caller's own pod, which Settings describes. A bind becomes a mount of
// a part of such a volume (subPath). Nothing secret is in the pod's object: the command and its environment are in the
// order, a file that only the caller's user can read.
//
// # The end
//
// The pod is deleted when Run returns. To end a command early, Run deletes its pod, and the kubelet sends TERM. If the
// caller is gone, the beats stop, and package enter ends the container; the pod also belongs to the caller's own
// pod, with which Kubernetes removes it. The next Run removes what others have left.
//
// A pod that somebody else deletes, that Kubernetes evicts, or whose node is lost, is the host's fault.
//
// # Waiting
//
// Until the command begins, Container.OnWait gets the reason why it does not, in the words of the scheduler and of the
// kubelet. An image that the registry does not have fails at once; all else may pass, and is given time.
package pods
