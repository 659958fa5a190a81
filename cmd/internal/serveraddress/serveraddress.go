// Package serveraddress finds the address of the CodaLab server that cl uses, for other programs.
package serveraddress

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Variable is the environment variable that names the server where no flag does.
const Variable = "CL_SERVER"

// Find returns the address that a flag names, or else $CL_SERVER, or else the session that cl work has
// chosen, or else cli/default_address in cl's configuration. It resolves the names of cl alias. It
// returns nothing if nobody has chosen one. It follows session and address in cmd/cl.
func Find(getenv func(string) string, flag string) (string, error) {
	var config struct {
		Aliases map[string]any `json:"aliases"`
		CLI     struct {
			DefaultAddress string `json:"default_address"`
		} `json:"cli"`
	}
	if err := read(getenv, "config.json", &config); err != nil {
		return "", err
	}
	if named := cmp.Or(flag, getenv(Variable)); named != "" {
		if address, ok := config.Aliases[named].(string); ok && address != "" {
			named = address
		}
		return strings.TrimRight(named, "/"), nil
	}
	var state struct {
		Sessions map[string]struct {
			Address string `json:"address"`
		} `json:"sessions"`
	}
	if err := read(getenv, "cl-state.json", &state); err != nil {
		return "", err
	}
	session := cmp.Or(getenv("CODALAB_SESSION"), "default")
	return strings.TrimRight(cmp.Or(state.Sessions[session].Address, config.CLI.DefaultAddress), "/"), nil
}

// read reads a file of cl's directory. One that is not there has nothing in it.
func read(getenv func(string) string, name string, into any) error {
	dir := getenv("CODALAB_HOME")
	if home := getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".codalab")
	}
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("find server: %w", err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("find server: read %s: %w", path, err)
	}
	return nil
}
