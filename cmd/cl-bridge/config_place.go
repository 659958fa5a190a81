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

// configVariable is the environment variable that names the configuration where
// --config does not.
const configVariable = "CL_BRIDGE_CONFIG"

// configFlag gives a command --config. Before the command runs, path becomes the file
// that the flag names, or the one in its usual place.
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

// findConfig returns the configuration that the flag names, or else the one that the
// environment names, or else the one in the user's configuration directory.
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
		return path, nil // its reader says what is wrong with it
	case p.Getenv(configVariable) != "":
		return "", fmt.Errorf("no configuration: $%s names %s, which is not there; \"cl-bridge init\" writes one", configVariable, path)
	}
	return "", fmt.Errorf("no configuration: $%s is not set, and there is no %s; \"cl-bridge init\" writes one, and --config names another", configVariable, path)
}

// configPlace returns the path of the configuration where no flag names one.
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

// userDir returns this program's directory in one of the user's directories: the one
// that a variable names, or else the one in the home.
func userDir(p program.Process, variable string, inHome ...string) (string, error) {
	dir := p.Getenv(variable)
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(append([]string{home}, inHome...)...)
	}
	return filepath.Join(dir, "cl-bridge"), nil
}
