// Package access finds the objects that requests name, and refuses users who lack the permission. It reads
// the store, and writes nothing but home worksheets at their first use.
//
// Root and the owner may do everything with a bundle or a worksheet. Other users may do what groups grant
// them (package store). The account of a program that runs bundles for others has permissions on the runs
// that its workers have, and on their inputs, and on nothing else. A worker token has those permissions of
// its user that its one worker needs.
//
// Errors are refusals that a client can show, or errors of the store.
package access
