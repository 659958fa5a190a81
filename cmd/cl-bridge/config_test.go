package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestConfigurationIsFoundInItsUsualPlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": dir}
	p := program.Process{Getenv: func(name string) string { return env[name] }}
	usual, own := filepath.Join(dir, "cl-bridge", "bridge.toml"), filepath.Join(dir, "own.toml")
	find := func(flag, want, complaint string) {
		t.Helper()
		got, err := findConfig(p, flag)
		if got != want || complaint == "" && err != nil || complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
			t.Errorf("--config %q: %q, %v; want %q, %q", flag, got, err, want, complaint)
		}
	}
	find("a.toml", "a.toml", "")
	find("", "", "$CL_BRIDGE_CONFIG is not set, and there is no "+usual+`; "cl-bridge init" writes one`)
	if err := os.MkdirAll(filepath.Dir(usual), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(usual, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	find("", usual, "")
	env[configVariable] = own
	find("", "", "$CL_BRIDGE_CONFIG names "+own+", which is not there")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	find("", own, "")
	find("b.toml", "b.toml", "")
}
