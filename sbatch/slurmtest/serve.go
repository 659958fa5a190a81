package slurmtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// programs are the commands of Slurm that a cluster answers as.
var programs = []string{"sbatch", "squeue", "sacct", "sacctmgr", "scancel", "sinfo", "scontrol"} //nolint:gochecknoglobals // never written

const socket = "slurmctld"

// call is one start of a command.
type call struct {
	Program string
	Args    []string
	Env     []string
	Dir     string
	Stdin   string
	UID     int
}

// answer is what came of it.
type answer struct {
	Stdout, Stderr string
	Exit           int
}

// Main is Slurm's command when the program was started as one of a Cluster, and
// then it does not return. Else it does nothing.
func Main() {
	program := filepath.Base(os.Args[0])
	if !slices.Contains(programs, program) {
		return
	}
	a, err := ask(program)
	if err != nil {
		a = answer{Stderr: "slurmtest: " + err.Error() + "\n", Exit: unmodelledExit}
	}
	_, _ = io.WriteString(os.Stderr, a.Stderr) // nobody to tell
	if _, err := io.WriteString(os.Stdout, a.Stdout); err != nil {
		a.Exit = 1
	}
	os.Exit(a.Exit)
}

// ask sends this process's command line to its cluster.
func ask(program string) (answer, error) {
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return answer{}, fmt.Errorf("find own place: %w", err)
	}
	bin := filepath.Dir(path)
	c := call{Program: program, Args: os.Args[1:], Env: os.Environ()}
	if filepath.Base(bin) == "bin" {
		c.UID = ordinary
	}
	if c.Dir, err = os.Getwd(); err != nil {
		return answer{}, fmt.Errorf("find own directory: %w", err)
	}
	if program == "sbatch" && readsScript(c.Args) {
		in, err := io.ReadAll(os.Stdin)
		if err != nil {
			return answer{}, fmt.Errorf("read script: %w", err)
		}
		c.Stdin = string(in)
	}
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", filepath.Join(bin, "..", socket))
	if err != nil {
		return answer{}, fmt.Errorf("reach the test's cluster: %w", err)
	}
	defer func() { _ = conn.Close() }() // all was said
	var a answer
	if err := json.NewEncoder(conn).Encode(c); err != nil {
		return answer{}, fmt.Errorf("ask the test's cluster: %w", err)
	}
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("hear the test's cluster: %w", err)
	}
	return a, nil
}

// ordinary stands for the user of the executables in Bin.
const ordinary = -1

// readsScript says whether sbatch reads standard input.
func readsScript(args []string) bool {
	wrapped := false
	rest, err := scan("sbatch", sbatchOptions, args, func(long, _ string) error {
		wrapped = wrapped || long == "wrap" || long == "version"
		return nil
	})
	return err == nil && len(rest) == 0 && !wrapped
}

// serve answers the executables until the cluster ends.
func (k *Cluster) serve() {
	for {
		conn, err := k.listen.Accept()
		if err != nil {
			return
		}
		k.served.Go(func() { k.converse(conn) })
	}
}

// converse answers one executable. One that is killed meanwhile hangs up; what
// it asked for is done nevertheless.
func (k *Cluster) converse(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	var c call
	if err := json.NewDecoder(conn).Decode(&c); err != nil {
		return
	}
	if c.UID == ordinary {
		c.UID = k.user().UID
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // until the executable is gone
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	if a, err := k.answer(ctx, c); err == nil {
		_ = json.NewEncoder(conn).Encode(a) // it may be gone
	}
}

// unmodelledExit is the status of a command that is not modelled.
const unmodelledExit = 99

// timedOut is what a command says whose question was answered too late.
func (c call) timedOut() string {
	const late = "Socket timed out on send/recv operation\n"
	switch c.Program {
	case "sbatch":
		return "sbatch: error: Batch job submission failed: " + late
	case "scancel":
		if id := c.Args[len(c.Args)-1]; !slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--name") }) {
			return "scancel: error: Kill job error on job id " + id + ": " + late
		}
		return "slurm_load_jobs error: " + late
	case "sacct":
		return "sacct: error: slurmdbd: " + late
	case "sinfo":
		return "slurm_load_partitions: " + late
	}
	return "slurm_load_jobs error: " + late
}
