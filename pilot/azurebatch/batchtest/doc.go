// Package batchtest is a stand-in for the Azure Batch service, and for a container of Azure Storage, for tests.
//
// [Service] answers the calls that package azurebatch makes, and some more, in the documented shapes of the versions
// 2022-10-01.16.0, 2025-06-01 and 2026-10-01. It keeps a job, its tasks and a pool. It verifies the signature of each
// request by an own reading of "Authenticate requests to the Azure Batch service", and refuses properties, filters and
// versions that the service does not have. Microsoft's own client for JavaScript speaks with it in
// TestMicrosoftsClientReadsTheStandIn of azurebatch. TestRequestsAndAnswersAreThoseOfTheOpenAPIFile
// compares requests and answers with the definitions of Microsoft's OpenAPI file of 2025-06-01.
//
// A task takes a slot of a node, and runs until the test finishes it; or Execute runs it, for instance as a process.
//
// It does not have: job schedules, certificates, applications, multi-instance tasks, dependencies, autoscale formulas.
package batchtest
