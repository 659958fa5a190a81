// Package awstest provides AWS Batch and CloudWatch Logs for tests, in two forms behind the same [Gate] of faults.
//
// [Cloud] is a double in memory with the documented rules of AWS: pages, states, filters, errors. Tests move its jobs.
// [Moto] is a moto_server, the double that AWS's own Python library has in its tests, with real containers of a
// private Docker engine. It is skipped where the machine has neither.
package awstest
