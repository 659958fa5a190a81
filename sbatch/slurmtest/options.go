package slurmtest

import (
	"fmt"
	"strings"
)

// failure is how a command of Slurm ends that does not succeed.
type failure struct {
	exit   int
	stderr []string // lines
}

func (f *failure) Error() string {
	return fmt.Sprintf("exit status %d: %s", f.exit, strings.Join(f.stderr, "; "))
}

func (f *failure) text() string {
	if len(f.stderr) == 0 {
		return ""
	}
	return strings.Join(f.stderr, "\n") + "\n"
}

func fail(exit int, lines ...string) error { return &failure{exit: exit, stderr: lines} }

// option is one option of a command.
type option struct {
	long  string
	short byte // 0 for none
	value bool // it takes one
}

// scan reads an argument vector as getopt_long(3) does, which Slurm's commands
// use: options in any place, long ones by any unambiguous beginning. It returns
// what is left.
func scan(program string, known []option, args []string, set func(long, value string) error) ([]string, error) {
	var rest []string
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--":
			return append(rest, args...), nil
		case strings.HasPrefix(arg, "--"):
			args, err = scanLong(program, known, arg[2:], args, set)
		case len(arg) > 1 && arg[0] == '-':
			args, err = scanShort(program, known, arg[1:], args, set)
		default:
			rest = append(rest, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return rest, nil
}

func scanLong(program string, known []option, arg string, args []string, set func(long, value string) error) ([]string, error) {
	name, value, given := strings.Cut(arg, "=")
	o := find(known, name)
	switch {
	case o == nil:
		return nil, misused(program, "unrecognized option '--"+name+"'")
	case given && !o.value:
		return nil, misused(program, "option '--"+o.long+"' doesn't allow an argument")
	case o.value && !given && len(args) == 0:
		return nil, misused(program, "option '--"+o.long+"' requires an argument")
	case o.value && !given:
		value, args = args[0], args[1:]
	}
	return args, set(o.long, value)
}

func scanShort(program string, known []option, letters string, args []string, set func(long, value string) error) ([]string, error) {
	for letters != "" {
		var o *option
		for i := range known {
			if known[i].short == letters[0] {
				o = &known[i]
			}
		}
		if o == nil {
			return nil, misused(program, "invalid option -- '"+letters[:1]+"'")
		}
		value := letters[1:]
		switch {
		case !o.value:
			if err := set(o.long, ""); err != nil {
				return nil, err
			}
			letters = value
			continue
		case value == "" && len(args) == 0:
			return nil, misused(program, "option requires an argument -- '"+letters[:1]+"'")
		case value == "":
			value, args = args[0], args[1:]
		}
		return args, set(o.long, value)
	}
	return args, nil
}

// find returns the option of this name, or the only one that begins with it.
func find(known []option, name string) *option {
	var found *option
	for i := range known {
		switch {
		case known[i].long == name:
			return &known[i]
		case !strings.HasPrefix(known[i].long, name):
		case found != nil:
			return nil
		default:
			found = &known[i]
		}
	}
	return found
}

// misused is what getopt(3) says, and the command after it.
func misused(program, what string) error {
	exit := 1
	if program == "sbatch" {
		exit = 255
	}
	lines := []string{program + ": " + what}
	if program != "sacct" { // it says no more
		lines = append(lines, `Try "`+program+` --help" for more information`)
	}
	return fail(exit, lines...)
}

// sbatchOptions are those of sbatch(1) that are modelled, and the better known
// of those that are not: spec.set says so.
var sbatchOptions = []option{ //nolint:gochecknoglobals // a table, never written
	{"account", 'A', true},
	{"array", 'a', true},
	{"begin", 'b', true},
	{"chdir", 'D', true},
	{"comment", 0, true},
	{"constraint", 'C', true},
	{"cpus-per-task", 'c', true},
	{"error", 'e', true},
	{"export", 0, true},
	{"gres", 0, true},
	{"hold", 'H', false},
	{"input", 'i', true},
	{"job-name", 'J', true},
	{"licenses", 'L', true},
	{"mem", 0, true},
	{"nice", 0, true},
	{"no-requeue", 0, false},
	{"nodelist", 'w', true},
	{"nodes", 'N', true},
	{"ntasks", 'n', true},
	{"open-mode", 0, true},
	{"output", 'o', true},
	{"parsable", 0, false},
	{"partition", 'p', true},
	{"propagate", 0, true},
	{"qos", 'q', true},
	{"requeue", 0, false},
	{"reservation", 0, true},
	{"signal", 0, true},
	{"time", 't', true},
	{"time-min", 0, true},
	{"wait", 'W', false},
	{"wckey", 0, true},
	{"wrap", 0, true},

	{"clusters", 'M', true},
	{"deadline", 0, true},
	{"dependency", 'd', true},
	{"exclude", 'x', true},
	{"exclusive", 0, false},
	{"get-user-env", 0, false},
	{"gpus", 'G', true},
	{"gpus-per-node", 0, true},
	{"gpus-per-task", 0, true},
	{"kill-on-invalid-dep", 0, true},
	{"mail-type", 0, true},
	{"mail-user", 0, true},
	{"mem-per-cpu", 0, true},
	{"mem-per-gpu", 0, true},
	{"ntasks-per-node", 0, true},
	{"oversubscribe", 's', false},
	{"priority", 0, true},
	{"switches", 0, true},
	{"test-only", 0, false},
	{"threads-per-core", 0, true},
	{"tmp", 0, true},
	{"uid", 0, true},
	{"verbose", 'v', false},
	{"wait", 'W', false},
}
