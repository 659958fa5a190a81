package main

import (
	"bufio"
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
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Quotas of new users.
const (
	timeQuota        = 100 * 365 * 86400 // seconds
	parallelRunQuota = 100
)

type newUser struct {
	at                      place
	passwordFile, diskQuota string
	root                    bool
}

func userAddCommand(ctx context.Context, p program.Process) *cobra.Command {
	var in newUser
	cmd := &cobra.Command{
		Use: "add --data DIRECTORY NAME", Short: "Add a user", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Add a user. The password is the first line of --password-file, or of standard
input; on a terminal cl-server asks for it.`,
		RunE: func(_ *cobra.Command, args []string) error { return addUser(ctx, p, in, args[0]) },
	}
	in.at.flags(cmd)
	cmd.Flags().StringVar(&in.passwordFile, "password-file", "", "the `file` whose first line is the password")
	cmd.Flags().StringVar(&in.diskQuota, "disk-quota", "1t", "the total `size` of the user's bundles")
	cmd.Flags().BoolVar(&in.root, "root", false, "the user has all permissions; there is one such user")
	return cmd
}

func addUser(ctx context.Context, p program.Process, in newUser, name string) error {
	if !codalab.IsName(name) {
		return program.Usage(fmt.Errorf("user name %q: want a letter or underscore, then letters, digits, underscores, periods and dashes", name))
	}
	quota, err := codalab.ParseSize(in.diskQuota)
	if err != nil {
		return program.Usage(fmt.Errorf("--disk-quota: %w", err))
	}
	password, err := readPassword(p, in.passwordFile)
	if err != nil {
		return err
	}
	hashed := server.HashPassword(password, server.DefaultPasswordCost())
	u := store.User{
		ID: codalab.NewUUID(), Name: name, Password: hashed, Joined: store.Time{Time: p.Now()},
		TimeQuota: timeQuota, DiskQuota: quota, ParallelRunQuota: parallelRunQuota,
	}
	if in.root {
		u.ID = store.RootID
	}
	return in.at.withStore(ctx, func(data *store.Store) error {
		err := data.AddUser(ctx, u)
		if errors.Is(err, store.ErrExists) && in.root {
			return fmt.Errorf("add user %s: the name is taken, or there is a root user already", name)
		}
		return err
	})
}

// readPassword reads the password from a file, the terminal or standard input.
func readPassword(p program.Process, file string) (string, error) {
	in, from := p.Stdin, "standard input"
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read password: %w", err)
		}
		defer f.Close() //nolint:errcheck // only read
		in, from = f, file
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

func userListCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at place
	cmd := &cobra.Command{
		Use: "ls --data DIRECTORY", Short: "List the users", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(_ *cobra.Command, _ []string) error {
			return at.withStore(ctx, func(data *store.Store) error {
				users, err := data.Users(ctx)
				if err != nil {
					return err
				}
				return p.Print(false, nil, userTable(users))
			})
		},
	}
	at.flags(cmd)
	return cmd
}

func userTable(users []store.User) string {
	rows := [][]string{{"NAME", "ID", "JOINED", "DISK USED", "QUOTA"}}
	for _, u := range users {
		rows = append(rows, []string{u.Name, u.ID, u.Joined.UTC().Format("2006-01-02"), codalab.FormatSize(u.DiskUsed), codalab.FormatSize(u.DiskQuota)})
	}
	return termtext.Table(rows)
}
