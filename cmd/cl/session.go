package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// defaultAddress is where cl-server listens unless it is told otherwise.
const defaultAddress = "http://127.0.0.1:2900"

// session is what `cl work` switches: a server, and a worksheet on it.
type session struct {
	Address string `json:"address"`
	// Worksheet is a uuid; empty means the user's home worksheet.
	Worksheet string `json:"worksheet,omitempty"`
}

// stateFile is cl-state.json in $CODALAB_HOME. CodaLab's own cl keeps one session per shell;
// here they are one, so that the next terminal goes on where this one stopped, unless
// CODALAB_SESSION names another.
type stateFile struct {
	path string
	// Sessions are kept by name.
	Sessions map[string]session `json:"sessions"`
	// Users are the names given at each server's prompt, by address.
	Users map[string]string `json:"users,omitempty"`
}

// home returns cl's directory, which it makes when something is first written.
func (c *cli) home() (string, error) {
	if dir := c.Getenv("CODALAB_HOME"); dir != "" {
		return dir, nil
	}
	dir := c.Getenv("HOME")
	if dir == "" {
		return "", errors.New("set CODALAB_HOME or HOME: cl keeps its state there")
	}
	return filepath.Join(dir, ".codalab"), nil
}

// load reads the state, once.
func (c *cli) load() (*stateFile, error) {
	if c.state != nil {
		return c.state, nil
	}
	dir, err := c.home()
	if err != nil {
		return nil, err
	}
	s := &stateFile{path: filepath.Join(dir, "cl-state.json")}
	data, err := os.ReadFile(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if err == nil {
		if err := json.Unmarshal(data, s); err != nil {
			return nil, fmt.Errorf("read state %s: %w; remove the file to begin anew", s.path, err)
		}
	}
	if s.Sessions == nil {
		s.Sessions = map[string]session{}
	}
	if s.Users == nil {
		s.Users = map[string]string{}
	}
	c.state = s
	return s, nil
}

func (s *stateFile) save() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return atomicfile.Write(s.path, append(data, '\n'), 0o600)
}

func (c *cli) sessionName() string { return cmp.Or(c.Getenv("CODALAB_SESSION"), "default") }

// session returns the current session. A server that is named for this call only, other than
// that of the session, is used with its home worksheet.
func (c *cli) session() (session, error) {
	state, err := c.load()
	if err != nil {
		return session{}, err
	}
	s := state.Sessions[c.sessionName()]
	s.Address = cmp.Or(s.Address, defaultAddress)
	if named := strings.TrimRight(cmp.Or(c.server, c.Getenv("CL_SERVER")), "/"); named != "" && named != s.Address {
		s = session{Address: named}
	}
	return s, nil
}

// switchTo makes s the current session.
func (c *cli) switchTo(s session) error {
	state, err := c.load()
	if err != nil {
		return err
	}
	state.Sessions[c.sessionName()] = s
	return state.save()
}

// place is a worksheet on a server, where specs have their meaning.
type place struct {
	*client.Client
	// spec names the worksheet, relative to base; it becomes a uuid when it is first needed.
	spec, base string
}

// place finds the server of a worksheet's spec, [ADDRESS::]WORKSHEET; empty and "." are the
// current one (bundle_cli.py: parse_client_worksheet_uuid).
func (c *cli) place(spec string) (*place, error) {
	current, err := c.session()
	if err != nil {
		return nil, err
	}
	address, name, explicit := splitInstance(spec)
	if explicit {
		current = session{Address: address}
	}
	api, err := c.connect(current.Address)
	if err != nil {
		return nil, err
	}
	if name == "" || name == "." {
		name = cmp.Or(current.Worksheet, client.HomeWorksheet)
	}
	return &place{Client: api, spec: name, base: current.Worksheet}, nil
}

// other is another worksheet on the same server.
func (p *place) other(spec string) *place {
	if spec == "" {
		return p
	}
	return &place{Client: p.Client, spec: spec, base: p.base}
}

// worksheet returns the worksheet's uuid, which takes a call unless it is known.
func (p *place) worksheet(ctx context.Context) (string, error) {
	if !codalab.IsUUID(p.spec) {
		w, err := p.FindWorksheet(ctx, p.base, p.spec)
		if err != nil {
			return "", err
		}
		p.spec = w.UUID
	}
	return p.spec, nil
}

// splitInstance parts ADDRESS::SPEC.
func splitInstance(spec string) (address, rest string, ok bool) {
	address, rest, ok = strings.Cut(spec, "::")
	if !ok {
		return "", spec, false
	}
	return strings.TrimRight(address, "/"), rest, true
}
