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

// defaultAddress is the default address of cl-server.
const defaultAddress = "http://127.0.0.1:2900"

// session is a server and a worksheet on it. `cl work` switches it.
type session struct {
	Address string `json:"address"`
	// Worksheet is a uuid; empty means the user's home worksheet.
	Worksheet string `json:"worksheet,omitempty"`
}

// stateFile is cl-state.json in $CODALAB_HOME. CodaLab's own cl keeps a session for each
// shell. This cl shares one session among all terminals, unless CODALAB_SESSION names another.
type stateFile struct {
	path string
	// Sessions are the sessions by name.
	Sessions map[string]session `json:"sessions"`
	// Users are the names that the user entered at prompts, by server address.
	Users map[string]string `json:"users,omitempty"`
	// ToldPublic are the servers and users, "ADDRESS USERID", that were told that everybody may read their bundles.
	ToldPublic map[string]bool `json:"told_public,omitempty"`
}

// home returns cl's directory, which need not exist yet.
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

// load reads the state at its first call.
func (c *cli) load() (*stateFile, error) {
	if c.state != nil {
		return c.state, nil
	}
	return c.reload()
}

// update reads the state again, since other processes may have changed it, then changes and
// saves it.
func (c *cli) update(change func(*stateFile)) error {
	state, err := c.reload()
	if err != nil {
		return err
	}
	change(state)
	return saveFile(state.path, state)
}

// reload reads the state.
func (c *cli) reload() (*stateFile, error) {
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
	if s.ToldPublic == nil {
		s.ToldPublic = map[string]bool{}
	}
	c.state = s
	return s, nil
}

// saveFile writes a value as JSON to a file of cl's directory, which only the user can read.
func saveFile(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "    ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(path, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return nil
}

func (c *cli) sessionName() string { return cmp.Or(c.Getenv("CODALAB_SESSION"), "default") }

// session returns the current session. If --server or CL_SERVER names another server, it is
// that server's home worksheet.
func (c *cli) session() (session, error) {
	state, err := c.load()
	if err != nil {
		return session{}, err
	}
	s := state.Sessions[c.sessionName()]
	if s.Address == "" {
		config, err := c.loadConfig()
		if err != nil {
			return session{}, err
		}
		s.Address = strings.TrimRight(config.text("cli", "default_address"), "/")
	}
	named := cmp.Or(c.server, c.Getenv("CL_SERVER"))
	if named != "" {
		if named, err = c.address(named); err != nil {
			return session{}, err
		}
	}
	if named != "" && named != s.Address {
		s = session{Address: named}
	}
	c.unchosen = s.Address == ""
	s.Address = cmp.Or(s.Address, c.fallback)
	return s, nil
}

// switchTo makes s the current session.
func (c *cli) switchTo(s session) error {
	return c.update(func(state *stateFile) { state.Sessions[c.sessionName()] = s })
}

// workspace is a server and one of its worksheets, on which the server resolves specs.
type workspace struct {
	*client.Client
	// spec names the worksheet, relative to base. worksheetUUID replaces it by the uuid.
	spec, base string
	owner      *cli
}

// workspace returns the workspace of a spec, [ADDRESS::]WORKSHEET; empty and "." mean the
// current worksheet (bundle_cli.py: parse_client_worksheet_uuid).
func (c *cli) workspace(spec string) (*workspace, error) {
	current, err := c.session()
	if err != nil {
		return nil, err
	}
	address, name, explicit := codalab.SplitInstance(spec)
	if explicit {
		if address, err = c.address(address); err != nil {
			return nil, err
		}
		current, c.unchosen = session{Address: address}, false
	}
	api, err := c.connect(current.Address)
	if err != nil {
		return nil, err
	}
	if name == "" || name == "." {
		name = cmp.Or(current.Worksheet, client.HomeWorksheet)
	}
	return &workspace{Client: api, spec: name, base: current.Worksheet, owner: c}, nil
}

// onWorksheet returns a workspace on the same server; the same one if spec is empty.
func (w *workspace) onWorksheet(spec string) *workspace {
	if spec == "" {
		return w
	}
	return &workspace{Client: w.Client, spec: spec, base: w.base, owner: w.owner}
}

// worksheetUUID returns the worksheet's uuid. It calls the server at its first use, unless
// spec is a uuid.
func (w *workspace) worksheetUUID(ctx context.Context) (string, error) {
	if !codalab.IsUUID(w.spec) {
		found, err := w.FindWorksheet(ctx, w.base, w.spec)
		if err != nil {
			return "", err
		}
		w.spec = found.UUID
	}
	return w.spec, nil
}

// openWorksheet returns the workspace of a spec, and the uuid of its worksheet.
func (c *cli) openWorksheet(ctx context.Context, spec string) (*workspace, string, error) {
	at, err := c.workspace(spec)
	if err != nil {
		return nil, "", err
	}
	uuid, err := at.worksheetUUID(ctx)
	return at, uuid, err
}
