// Package terminal executes command lines of CodaLab's web page (POST /cli/command). The page makes worksheets and runs with
// them, kills and removes bundles, and shares; its terminal sends what a person has typed.
//
// CodaLab's own server executes any command of its cl for that, as a client of itself (codalab/rest/cli.py). Here a command line
// is one of a few commands, which the table in commands.go lists. Each is a function over a client of this server, whose
// requests enter the server's own handler in memory: no command reads a file or the environment of the server, starts a program
// or opens a connection. The requests carry the proof of the request that brought the command line, so they are authenticated,
// admitted, limited and audited as if the user had sent them.
//
// The page's terminal (jquery.terminal) executes [[ COMMAND ]] in what it shows. So no command prints the text of a file, a
// command or a description, which another user may have written: only names, which have no brackets.
//
// The output, the time, and the commands of one user at a time are bounded.
package terminal
