// Package secrets serves the secrets of users. A user sets, lists and removes secrets, whose values no answer to a user
// has. A run names secrets in its metadata. The worker that has the run gets the values, once it has claimed the run.
//
// A worker gets secrets only of its own user, or if it belongs to the site: to root, or to a worker account. A worker that
// another user runs for a group never gets any, although it may run the group's bundles.
package secrets
