// Package sourcetree finds the files of a directory that a run gets: those that a colleague would get from the repository,
// and those that are not committed yet.
//
// In a repository of git, and with a git program, they are the files that git tracks and the new ones that it does not
// ignore. Elsewhere they are all files that no .gitignore of the directory and of those in it names. In both cases .clignore
// leaves out more, in the same format, and .git is left out.
//
// A Tree is a snapshot. Its digest depends on the paths, the contents, the targets of links and the permission to execute,
// so equal trees have equal digests on all machines.
package sourcetree
