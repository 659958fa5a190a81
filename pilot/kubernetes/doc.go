// Package kubernetes runs pilots in pods of a Kubernetes cluster: one pod for each, which is never started a second
// time.
//
// A pod's name is its pilot's: cl-worker-<32 hexadecimal digits>. Its label [ManagerLabel] has the name of the manager,
// and a manager finds its pods by that label. A pod's name is also what makes a start safe: if the answer of a creation
// is lost, the backend repeats the creation, and the answer AlreadyExists shows that the first one was successful.
//
// The worker's login is in a Secret of the pod's name, which the pod owns: Kubernetes removes it together with the pod.
// The backend creates the pod first. A kubelet starts the container only when the Secret is there, so a manager that
// was killed in between can create it later ([Backend.Tidy]).
//
// While [Backend.Run] runs, the cluster reports each change of a pod, and an answer of Pilots costs no request. Commands
// that look once list the pods, page by page.
//
// The package follows codalab/worker_manager/kubernetes_worker_manager.py of CodaLab.
package kubernetes
