// Package kubetest gives tests namespaces of the cluster that scripts/kubernetes starts, images on its nodes, and programs
// in its pods.
//
//	namespace := kubetest.Namespace(t)
//	image := kubetest.Image(t, kubetest.Programs(t, "sh", "cat")...)
//	end := kubetest.Run(t, namespace, kubetest.Pod{Image: image, Command: []string{"sh", "-c", "cat /proc/self/status"}})
//
// A namespace, its pods and an image are removed at the end of the test. Without a cluster the test is skipped.
package kubetest
