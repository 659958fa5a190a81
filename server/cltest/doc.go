// Package cltest plays scripts of cl: CodaLab's own cl or ours, on CodaLab's own server or ours.
//
// Scripts are in scripts. The outputs of CodaLab's own cl on CodaLab's own server are in recorded.
// Two tests compare with them: TestRealClient of package server plays the scripts with CodaLab's
// own cl on our server, and TestRecordedScripts of cmd/cl with our cl. An intended difference is a
// row of a table, with its reason: ServerDifferences for our server, and a table in cmd/cl for our
// cl. Both tests fail at any other difference, and at a row that no step shows.
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
// directory, $url the server's address, $port a free port, and $nl a line's end.
//
// # Output
//
// The output of a step is cl's standard output, then the lines of standard error, which begin with
// an exclamation mark, then the exit code if it is not zero. Names replace identifiers, and marks
// replace values that differ between two runs on one server, such as times (masks).
package cltest
