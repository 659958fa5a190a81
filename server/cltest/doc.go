// Package cltest plays scripts of cl: CodaLab's own cl or ours, on CodaLab's own server or ours.
//
// Scripts are in scripts. What CodaLab's own cl printed in each step on CodaLab's own server is in
// recorded. Two tests compare with it: TestRealClient of package server plays the scripts with
// CodaLab's own cl on our server, and TestRecordedScripts of cmd/cl with our cl. A difference that
// is on purpose is a row of a table, which says why: ServerDifferences for our server, and a table
// in cmd/cl for our cl. Both tests fail at any other difference, and at a row that no step shows.
//
// # Scripts
//
// A script is a list of steps, one in a line:
//
//	USER ARGS...         runs cl as ann, ben or root
//	NAME = USER ARGS...  the same; $NAME is the first identifier that it prints from now on
//	hears TEXT USER ...  repeats cl until it prints TEXT to standard output
//	until STATE USER B   repeats cl until the bundle B is in the state
//	sh COMMAND           runs a shell's command, which must succeed, in the script's directory
//	worker start W ARGS  starts a worker as ann, with the id W and these arguments of cl-worker
//	worker stop W        ends it by TERM
//	worker pause W       stops it, as a machine that hangs would; worker resume W lets it go on
//
// $R is a new word for names, $prefix the beginning of a uuid that no bundle has, $dir the script's
// directory, $url the server's address, $port a port that is free, and $nl a line's end.
//
// # What is compared
//
// A step prints what cl wrote to standard output, then the lines of standard error, which begin
// with an exclamation mark, then its exit code if that is not zero. Names stand for identifiers,
// and marks for what differs between two runs on one server, such as times (masks).
package cltest
