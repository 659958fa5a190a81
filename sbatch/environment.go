package sbatch

import (
	"os/user"
	"slices"
)

// DefaultPath is the PATH of jobs.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// environment returns the environment of all of Slurm's commands. It takes nothing from this process.
func (c *Client) environment() []string {
	env := []string{"PATH=" + DefaultPath}
	if c.Conf != "" {
		env = append(env, "SLURM_CONF="+c.Conf)
	}
	return env
}

// jobEnvironment returns the environment of sbatch, which sbatch passes on to the job. With --export=ALL no
// login shell adds to it: slurmd runs one only for a job that has SLURM_GET_USER_ENV. sbatch sets that for
// every other value of --export but NIL, and Slurm knows NIL only from 23.11 on (Slurm
// src/sbatch/sbatch.c: fill_job_desc_from_opts; src/slurmd/slurmd/req.c: _get_user_env).
func (c *Client) jobEnvironment(r Request) []string {
	env := append(c.environment(), "LANG=C.UTF-8", "SHELL=/bin/sh") // a node without the locale uses C
	if u, err := user.Current(); err == nil {                       // without an answer the job has no such variables
		env = append(env, "HOME="+u.HomeDir, "USER="+u.Username, "LOGNAME="+u.Username)
	}
	return slices.Concat(env, r.Env) // the last value of a variable counts
}
