// Package bundles serves bundles without their contents: it finds, creates, changes, shares and deletes them,
// and passes on what users want done to running ones.
//
// A bundle that a user may not read is shown as a private one, which tells nothing.
package bundles
