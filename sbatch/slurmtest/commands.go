package slurmtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// version is what --version prints.
const version = "slurm-wlm 22.05.8\n"

// perform carries out a command.
func (k *Cluster) perform(_ context.Context, c call) answer {
	var out string
	var err error
	if len(c.Args) == 1 && (c.Args[0] == "--version" || c.Args[0] == "-V") {
		return answer{Stdout: version}
	}
	switch c.Program {
	case "sbatch":
		out, err = k.sbatch(c)
	case "squeue":
		out, err = k.squeue(c)
	case "sacct":
		out, err = k.sacct(c)
	case "scancel":
		err = k.scancel(c)
	case "sacctmgr":
		out, err = k.sacctmgr(c)
	case "sinfo":
		out, err = k.sinfo(c)
	case "scontrol":
		out, err = k.scontrol(c)
	default:
		err = &UnmodelledError{What: c.Program}
	}
	a := answer{Stdout: out}
	var said *failure
	switch {
	case errors.As(err, &said):
		a.Stderr, a.Exit = said.text(), said.exit
	case err != nil:
		k.tb.Errorf("%s %q: %v", c.Program, c.Args, err)
		a.Stderr, a.Exit = err.Error()+"\n", unmodelledExit
	}
	return a
}

// env is a variable of a command's environment.
func (c call) env(name string) string {
	for _, v := range c.Env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// zone is that of the times a command reads and prints.
func (c call) zone() *time.Location {
	if z, err := time.LoadLocation(c.env("TZ")); c.env("TZ") != "" && err == nil {
		return z
	}
	return time.Local
}

// clock prints a time as a command does, and none as its word for that.
func (c call) clock(t time.Time, none string) string {
	switch {
	case t.IsZero():
		return none
	case c.env("SLURM_TIME_FORMAT") == "%s":
		return fmt.Sprint(t.Unix())
	}
	return t.In(c.zone()).Format(clockFormat)
}

// sbatchVariables are the input environment variables of sbatch(1) that are
// modelled, with their options. They count more than the script's lines.
var sbatchVariables = map[string]string{ //nolint:gochecknoglobals // a table, never written
	"SBATCH_PARTITION": "partition", "SBATCH_JOB_NAME": "job-name", "SBATCH_ACCOUNT": "account", "SBATCH_QOS": "qos",
	"SBATCH_TIMELIMIT": "time", "SBATCH_WCKEY": "wckey", "SBATCH_CONSTRAINT": "constraint",
}

// sbatch submits a job: its options are those of the script's #SBATCH lines, of
// the environment and of the command line, in this order.
func (k *Cluster) sbatch(c call) (string, error) {
	cli := &spec{}
	rest, err := scan("sbatch", sbatchOptions, c.Args, cli.set)
	if err != nil {
		return "", err
	}
	script, name := c.Stdin, "sbatch"
	switch {
	case cli.wrap != "":
		script, name = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"+cli.wrap+"\n", "wrap"
	case len(rest) > 1:
		return "", &UnmodelledError{What: "arguments of a batch script"}
	case len(rest) == 1:
		path := rest[0]
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fail(1, "sbatch: error: Unable to open file "+rest[0])
		}
		script, name = string(data), filepath.Base(path)
	}
	if err := checkScript(script); err != nil {
		return "", err
	}
	s := &spec{requeue: true}
	s.Name, s.Dir, s.Script = name, c.Dir, script
	args := append(scriptOptions(script), c.variables()...)
	if _, err := scan("sbatch", sbatchOptions, append(args, c.Args...), s.set); err != nil {
		return "", err
	}
	if !s.exportNone {
		s.env = append([]string{}, c.Env...)
	}
	var out string
	k.Do(func(now time.Time, m *Controller) {
		if s.testOnly {
			err = m.tryOnly(now, c, s)
			return
		}
		id, refused := m.submit(now, c.UID, s)
		if err = refused; refused != nil {
			return
		}
		if out = id.String() + "\n"; !s.parsable {
			out = "Submitted batch job " + out
		}
	})
	return out, err
}

// scriptOptions are those of a script's #SBATCH lines, which end with the first
// command.
func scriptOptions(script string) []string {
	var args []string
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			break
		}
		if options, ok := strings.CutPrefix(line, "#SBATCH "); ok {
			options, _, _ = strings.Cut(options, " #")
			args = append(args, strings.Fields(options)...)
		}
	}
	return args
}

// variables are the options that sbatch reads from its environment.
func (c call) variables() []string {
	var args []string
	for _, v := range c.Env {
		name, value, _ := strings.Cut(v, "=")
		if option, ok := sbatchVariables[name]; ok {
			args = append(args, "--"+option+"="+value)
		} else if strings.HasPrefix(name, "SBATCH_") {
			args = append(args, "--"+strings.ToLower(strings.TrimPrefix(name, "SBATCH_"))+"="+value)
		}
	}
	return args
}
