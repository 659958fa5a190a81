package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// configVariable names a configuration for all verbs that are told of none.
const configVariable = "CL_BRIDGE_CONFIG"

// configFlag gives a verb --config. Before the verb runs, path is the file that
// was named, or the one in its usual place.
func configFlag(cmd *cobra.Command, p program.Process, path *string) {
	cmd.Flags().StringVar(path, "config", "", "the configuration `file`, if not $"+configVariable+" or ~/.config/cl-bridge/bridge.toml")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		found, err := findConfig(p, *path)
		if err != nil {
			return &program.Error{Code: program.ExitUsage, Err: err}
		}
		*path = found
		return nil
	}
	if err := cmd.MarkFlagFilename("config", "toml"); err != nil {
		panic(err) // the flag was added above
	}
}

// findConfig is the configuration that a flag names, or else the environment, or
// else the one in the user's directory of configurations.
func findConfig(p program.Process, flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	path, err := configPlace(p)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return path, nil // what is wrong with it, reading it says
	case p.Getenv(configVariable) != "":
		return "", fmt.Errorf("no configuration: $%s names %s, which is not there; \"cl-bridge init\" writes one", configVariable, path)
	}
	return "", fmt.Errorf("no configuration: $%s is not set, and there is no %s; \"cl-bridge init\" writes one, and --config names another", configVariable, path)
}

// configPlace is where a configuration lies that no flag names.
func configPlace(p program.Process) (string, error) {
	if path := p.Getenv(configVariable); path != "" {
		return path, nil
	}
	dir, err := userDir(p, "XDG_CONFIG_HOME", ".config")
	if err != nil {
		return "", fmt.Errorf("find configuration: %w; name it with --config", err)
	}
	return filepath.Join(dir, "bridge.toml"), nil
}

// userDir is this program's part of one of the user's directories, which a
// variable names, or which lies in the home.
func userDir(p program.Process, variable string, inHome ...string) (string, error) {
	dir := p.Getenv(variable)
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err //nolint:wrapcheck // the caller says what for
		}
		dir = filepath.Join(append([]string{home}, inHome...)...)
	}
	return filepath.Join(dir, "cl-bridge"), nil
}
