// Package azurebatch runs pilots in tasks of Azure Batch: one task for each, in a job that the user has made, on the
// job's pool. Other tasks of that job are left alone.
//
// A task's id is its pilot's name: cl_worker_<mark>_<32 hexadecimal digits>. The mark is the manager's, so that
// managers side by side tell their tasks apart. The id is also the token of a start: Batch refuses a second task of
// the same id (TaskExists), so a start may be repeated.
//
// Batch itself reruns a task whose node is lost or preempted. It keeps its id: it is the same pilot.
//
// # Logs
//
// The output of a task is in the files stdout.txt and stderr.txt of its node. Batch uploads them to a container of
// Azure Storage when the task has ended (outputFiles), because the node may be gone soon.
//
// # Secrets
//
// A task has no password in it. It has a token of its one worker, and the address of the log container with its
// signature (SAS); whoever may read the task can read both. Neither is in an error, a log line or a printed task.
//
// # The client
//
// [Client] has the few calls of the service that the backend needs, over Microsoft's azcore. Microsoft publishes no
// client of the Batch service for Go. The version of the interface is [APIVersion].
//
// The package follows codalab/worker_manager/azure_batch_worker_manager.py of CodaLab. Package batchtest has a
// stand-in for the service.
package azurebatch
