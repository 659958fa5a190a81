// Package compare finds what differs between two bundles: entries of their trees, values in files of numbers, and lines
// of texts. It is pure: callers read the trees and the files.
package compare
