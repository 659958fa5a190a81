// Package disktrial tries what the disk of a directory does with the calls of programs: links, copies that share
// their blocks, renames, locks, attributes and files without a name.
//
// A trial makes files in a new directory, and removes it. Package linkonce has the trial of the calls without which
// no attempt may begin. The calls here are those that make a bundle slower, or fail within it, where the disk lacks
// them.
package disktrial
