// Package awsbatch runs pilots in jobs of AWS Batch: one job for each, of one container on an instance of EC2.
//
// A job's name is its pilot's: cl_worker_<mark>_<32 hexadecimal digits>. The mark is the manager's name, so that
// managers share a queue. ListJobs filters by name, but then it ignores the state and returns 100 jobs a page, those
// that ended in the last seven days included. Once that takes more than five requests, the backend asks for each of
// the five states of a job's life instead, which are five requests for up to 1,000 workers in each state. It
// describes the jobs that are missing in an answer.
//
// SubmitJob has no client token, and the SDK sends a request again whose answer is lost. Start therefore sends
// one request only, and its error says whether a job may exist. Pilots finds that job by its name.
//
// A job definition has the common part of all workers. The backend registers a revision only if no active one has the
// same content; a parameter of the definition has the hash of the content. Jobs name a revision, so that managers
// with different workers may share a definition's name. A job has its worker's own part, the command and the token.
//
// The package follows codalab/worker_manager/aws_batch_worker_manager.py of CodaLab. Other than CodaLab's, a
// container is never privileged and never gets the socket of the Docker engine.
package awsbatch
