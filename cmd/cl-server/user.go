package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

type newUser struct {
	at               dataLocation
	passwordFile, id string
	root, hashed     bool
	workerFor        []string
	quotas           quotas
}

func userAddCommand(ctx context.Context, p program.Process) *cobra.Command {
	var in newUser
	cmd := &cobra.Command{
		Use: "add --data DIRECTORY NAME", Short: "Add a user", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Add a user. The password is the first line of --password-file, or of standard
input; on a terminal cl-server asks for it. It has at least 10 characters, and is none
that guessers try first.

--root makes the root user, who has all permissions: to read and change everybody's
bundles, see all workers, and set quotas (cl uedit). Its workers run everybody's
bundles. Keep it for administration.

--worker-for makes the account of a program that runs others' bundles, such as a
bridge's. It may do nothing else: it reads the inputs of the bundles that its
workers have, and writes their results. The scopes are "everybody", "user=NAME"
and "group=NAME"; the flag may be repeated.

To move a user from another server, give the same --id, and --hashed with the
password's hash in place of the password, which may be of any length.`,
		RunE: func(_ *cobra.Command, args []string) error { return addUser(ctx, p, in, args[0]) },
	}
	in.at.flags(cmd)
	usual := newUserQuotas()
	in.quotas.flags(cmd, usual.disk, usual.time, usual.entries, usual.runs)
	f := cmd.Flags()
	f.StringVar(&in.passwordFile, "password-file", "", "the `file` whose first line is the password")
	f.BoolVar(&in.hashed, "hashed", false, "the password is given as a hash: pbkdf2_sha256$… of CodaLab's own server, or $argon2id$…")
	f.StringVar(&in.id, "id", "", "the user's `id`, 0x and 32 hexadecimal digits (default: a random one)")
	f.BoolVar(&in.root, "root", false, "the user has all permissions; there is one such user")
	f.StringArrayVar(&in.workerFor, "worker-for", nil, "make a worker account for the bundles in this `scope`: everybody, user=NAME or group=NAME; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("root", "id", "worker-for")
	return cmd
}

func addUser(ctx context.Context, p program.Process, in newUser, name string) error {
	u := store.User{ID: codalab.NewUUID(), Name: name, Joined: store.Time{Time: p.Now()}, Notifications: 2}
	switch {
	case !codalab.IsName(name):
		return program.Usage(fmt.Errorf("user name %q: want a letter or underscore, then letters, digits, underscores, periods and dashes", name))
	case in.root:
		u.ID = store.RootID
	case in.id != "":
		u.ID = in.id
	}
	if !codalab.IsUUID(u.ID) && !u.Root() {
		return program.Usage(fmt.Errorf("--id %q: want 0x and 32 hexadecimal digits", u.ID))
	}
	if err := in.quotas.set(&u); err != nil {
		return program.Usage(err)
	}
	var err error
	if u.Password, err = hashOf(p, in.passwordFile, name, in.hashed); err != nil {
		return err
	}
	return in.at.withStore(ctx, func(data *store.Store) error {
		scopes, err := parseScopes(ctx, data, in.workerFor)
		if err != nil {
			return err
		}
		if err := addNamed(ctx, p, data, u); err != nil || len(scopes) == 0 {
			return err
		}
		return data.SetScopes(ctx, u.ID, scopes)
	})
}

// addNamed adds a user. No two users have names that differ by case alone, since people would take one for the other.
func addNamed(ctx context.Context, p program.Process, data *store.Store, u store.User) error {
	like, err := data.UsersNamedLike(ctx, u.Name)
	if err != nil {
		return err
	}
	for _, other := range like {
		if other.Name != u.Name {
			return fmt.Errorf("add user %s: there is a user %s, whose name differs by case alone: choose another name", u.Name, other.Name)
		}
	}
	former, err := data.FormerHolder(ctx, u.Name)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	err = data.AddUser(ctx, u)
	switch {
	case errors.Is(err, store.ErrExists) && u.Root():
		return fmt.Errorf("add user %s: the name is taken, or there is a root user already", u.Name)
	case err == nil && former.Name != "":
		fmt.Fprintf(p.Stderr, "user %s had the name %s before, and cannot take it again\n", former.Name, u.Name)
	}
	return err
}

// hashOf reads a new password of a user and returns its hash, or reads the hash.
func hashOf(p program.Process, file, user string, hashed bool) (string, error) {
	text, err := readPassword(p, file)
	switch {
	case err != nil:
		return "", err
	case hashed:
		return text, server.CheckPasswordHash(text)
	}
	if err := server.CheckNewPassword(text, user); err != nil {
		return "", err
	}
	return server.HashPassword(text, server.DefaultPasswordCost()), nil
}

// parseScopes reads the scopes of a worker account.
func parseScopes(ctx context.Context, data *store.Store, words []string) ([]store.Scope, error) {
	var scopes []store.Scope
	for _, word := range words {
		kind, name, _ := strings.Cut(word, "=")
		switch kind {
		case "everybody":
			scopes = append(scopes, store.Scope{})
		case "user":
			u, err := data.User(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("scope %s: %w", word, err)
			}
			scopes = append(scopes, store.Scope{OwnerID: u.ID})
		case "group":
			groups, err := data.FindGroups(ctx, name)
			if err != nil || len(groups) != 1 {
				return nil, errors.Join(err, fmt.Errorf("scope %s: there is no such group", word))
			}
			scopes = append(scopes, store.Scope{GroupUUID: groups[0].UUID})
		default:
			return nil, program.Usage(fmt.Errorf("scope %q: want everybody, user=NAME or group=NAME", word))
		}
	}
	return scopes, nil
}

// readPassword reads the password from a file, the terminal or standard input.
func readPassword(p program.Process, file string) (string, error) {
	in, from := p.Stdin, "standard input"
	if file != "" {
		text, err := strictmodes.ReadSecret("password", file)
		if err != nil {
			return "", err
		}
		in, from = bytes.NewReader(text), file
	} else if f, ok := p.Stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return askPassword(f, p.Stderr)
	}
	line, err := bufio.NewReader(io.LimitReader(in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password from %s: %w", from, err)
	}
	return accept(strings.TrimRight(line, "\r\n"), from)
}

// askPassword asks twice, without echo.
func askPassword(terminal *os.File, prompt io.Writer) (string, error) {
	ask := func(text string) (string, error) {
		if _, err := fmt.Fprint(prompt, text); err != nil {
			return "", fmt.Errorf("ask for password: %w", err)
		}
		line, err := term.ReadPassword(int(terminal.Fd()))
		if err != nil {
			return "", fmt.Errorf("ask for password: %w", err)
		}
		_, err = fmt.Fprintln(prompt)
		return string(line), err
	}
	first, err := ask("Password: ")
	if err != nil {
		return "", err
	}
	second, err := ask("Again: ")
	if err != nil {
		return "", err
	}
	if first != second {
		return "", errors.New("the two passwords differ")
	}
	return accept(first, "the terminal")
}

func accept(password, from string) (string, error) {
	if password == "" {
		return "", fmt.Errorf("the password from %s is empty", from)
	}
	return password, nil
}
