// Package bundles serves bundles without their contents: it finds, creates, changes, shares and deletes them,
// kills runs, and writes files into running ones.
//
// A bundle that a user may not read is shown as a private one, which tells nothing.
package bundles
