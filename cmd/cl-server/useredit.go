package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// quotas are the flags for a user's quotas. Empty ones and -1 change nothing.
type quotas struct {
	disk, time    string
	entries, runs int64
}

// newUserQuotas are those of a user for whom there are no flags.
func newUserQuotas() quotas {
	return quotas{disk: "1t", time: "100y", entries: store.DefaultEntries, runs: 100_000}
}

func (q *quotas) flags(cmd *cobra.Command, disk, span string, entries, runs int64) {
	f := cmd.Flags()
	f.StringVar(&q.disk, "disk-quota", disk, "the total `size` of the user's bundles, and 4k for each file, directory and link in them")
	f.Int64Var(&q.entries, "entries-quota", entries, "the total `number` of files, directories and links in the user's bundles, and of the bundles")
	f.StringVar(&q.time, "time-quota", span, "the total `time` of the user's runs on root's workers and those of worker accounts")
	f.Int64Var(&q.runs, "parallel-runs", runs, "the `number` of the user's runs that such workers may have at once")
}

// set gives the user the quotas.
func (q *quotas) set(u *store.User) error {
	if q.disk != "" {
		n, err := codalab.ParseSize(q.disk)
		if err != nil {
			return fmt.Errorf("--disk-quota: %w", err)
		}
		u.DiskQuota = n
	}
	if q.time != "" {
		d, err := codalab.ParseDuration(q.time)
		if err != nil {
			return fmt.Errorf("--time-quota: %w", err)
		}
		u.TimeQuota = int64(d / time.Second)
	}
	if q.entries >= 0 {
		u.EntriesQuota = q.entries
	}
	if q.runs >= 0 {
		u.ParallelRunQuota = q.runs
	}
	return nil
}

func userQuotaCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var q quotas
	cmd := &cobra.Command{
		Use: "quota --data DIRECTORY NAME", Short: "Show or set a user's quotas", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: "Set the quotas of a user for which there are flags, and show all of them.",
		RunE: func(_ *cobra.Command, args []string) error {
			if err := q.set(&store.User{}); err != nil {
				return program.Usage(err)
			}
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				u, err := data.ChangeUser(ctx, u.ID, q.set)
				if err != nil {
					return err
				}
				return p.Print(false, nil, userTable([]store.User{u}))
			})
		},
	}
	at.flags(cmd)
	q.flags(cmd, "", "", -1, -1)
	return cmd
}

func userScopeCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var scopes []string
	cmd := &cobra.Command{
		Use: "scope --data DIRECTORY NAME", Short: "Show or set the scopes of a worker account", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Show or set the scopes of a worker account: its workers take the bundles in these
scopes. The scopes given by --worker-for replace the account's. See "user add".`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				if len(scopes) > 0 {
					list, err := parseScopes(ctx, data, scopes)
					if err == nil && u.Root() {
						err = errors.New("root runs everybody's bundles already, and is no worker account")
					}
					if err == nil {
						err = data.SetScopes(ctx, u.ID, list)
					}
					if err != nil {
						return err
					}
				}
				return showScopes(ctx, p, data, u)
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().StringArrayVar(&scopes, "worker-for", nil, "a `scope`: everybody, user=NAME or group=NAME; may be repeated")
	return cmd
}

// showScopes prints one line for each scope.
func showScopes(ctx context.Context, p program.Process, data *store.Store, u store.User) error {
	scopes, err := data.Scopes(ctx, u.ID)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, scope := range scopes {
		line := "everybody"
		switch {
		case scope.OwnerID != "":
			owner, err := data.User(ctx, scope.OwnerID)
			if err != nil {
				return err
			}
			line = "user=" + owner.Name
		case scope.GroupUUID != "":
			groups, err := data.FindGroups(ctx, scope.GroupUUID)
			if err != nil || len(groups) == 0 {
				return errors.Join(err, fmt.Errorf("the group %s is gone", scope.GroupUUID))
			}
			line = "group=" + groups[0].Name
		}
		fmt.Fprintln(&text, line)
	}
	if len(scopes) == 0 {
		fmt.Fprintf(&text, "%s is no worker account\n", u.Name)
	}
	return p.Print(false, nil, text.String())
}

func userRemoveCommand(ctx context.Context, _ program.Process) *cobra.Command {
	var at dataLocation
	cmd := &cobra.Command{
		Use: "rm --data DIRECTORY NAME", Short: "Remove a user who owns nothing", Args: program.WrongUsage(cobra.ExactArgs(1)),
		Long: `Remove a user, who must own no bundles, worksheets and groups: delete them, or
give them to others (cl chown), before.`,
		RunE: func(_ *cobra.Command, args []string) error {
			return at.withUser(ctx, args[0], func(data *store.Store, u store.User) error {
				if u.Root() {
					return errors.New("the root user cannot be removed")
				}
				owned, err := data.DeleteUser(ctx, u.ID)
				if err != nil {
					return err
				}
				for _, some := range [][]string{owned.Bundles, owned.Worksheets, owned.Groups} {
					if len(some) > 0 {
						return fmt.Errorf("%s still owns %s; delete that, or give it to another user", u.Name, strings.Join(some, ", "))
					}
				}
				return nil
			})
		},
	}
	at.flags(cmd)
	return cmd
}

// withUser runs do on the data and the user with a name.
func (at *dataLocation) withUser(ctx context.Context, name string, do func(*store.Store, store.User) error) error {
	return at.withStore(ctx, func(data *store.Store) error {
		u, err := findUser(ctx, data, name)
		if err != nil {
			return err
		}
		return do(data, u)
	})
}

// findUser returns the user with a name.
func findUser(ctx context.Context, data *store.Store, name string) (store.User, error) {
	u, err := data.User(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return u, fmt.Errorf("there is no user %s", name)
	}
	return u, err
}

// shownUser is a user in the output of "user ls --json". Sizes are in bytes, times in seconds.
type shownUser struct {
	Name             string    `json:"name"`
	ID               string    `json:"id"`
	Root             bool      `json:"root"`
	Worker           bool      `json:"worker"`
	Joined           time.Time `json:"joined"`
	LastLogin        time.Time `json:"last_login,omitzero"`
	DiskUsed         int64     `json:"disk_used"`
	DiskQuota        int64     `json:"disk_quota"`
	EntriesUsed      int64     `json:"entries_used"`
	EntriesQuota     int64     `json:"entries_quota"`
	TimeUsed         int64     `json:"time_used"`
	TimeQuota        int64     `json:"time_quota"`
	ParallelRunQuota int64     `json:"parallel_run_quota"`
}

func userListCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls --data DIRECTORY", Short: "List the users", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(_ *cobra.Command, _ []string) error {
			return at.withStore(ctx, func(data *store.Store) error {
				users, err := data.Users(ctx)
				if err != nil {
					return err
				}
				shown := []shownUser{}
				for _, u := range users {
					shown = append(shown, shownUser{
						Name: u.Name, ID: u.ID, Root: u.Root(), Worker: u.IsWorker, Joined: u.Joined.UTC(), LastLogin: u.LastLogin.Time,
						DiskUsed: u.DiskUsed, DiskQuota: u.DiskQuota, EntriesUsed: u.EntriesUsed, EntriesQuota: u.EntriesQuota,
						TimeUsed: u.TimeUsed, TimeQuota: u.TimeQuota, ParallelRunQuota: u.ParallelRunQuota,
					})
				}
				return p.Print(asJSON, shown, userTable(users))
			})
		},
	}
	at.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func userTable(users []store.User) string {
	rows := [][]string{{"NAME", "ID", "ROLE", "JOINED", "LAST LOGIN", "DISK USED", "QUOTA", "ENTRIES", "QUOTA", "TIME USED", "QUOTA", "RUNS AT ONCE"}}
	for _, u := range users {
		role, login := "user", "never"
		switch {
		case u.Root():
			role = "root"
		case u.IsWorker:
			role = "worker"
		}
		if !u.LastLogin.IsZero() {
			login = u.LastLogin.UTC().Format("2006-01-02")
		}
		seconds := func(n int64) string { return codalab.FormatDuration(time.Duration(n) * time.Second) }
		rows = append(rows, []string{
			u.Name, u.ID, role, u.Joined.UTC().Format("2006-01-02"), login,
			codalab.FormatSize(u.DiskUsed), codalab.FormatSize(u.DiskQuota),
			fmt.Sprint(u.EntriesUsed), fmt.Sprint(u.EntriesQuota), seconds(u.TimeUsed), seconds(u.TimeQuota), fmt.Sprint(u.ParallelRunQuota),
		})
	}
	return termtext.Table(rows)
}
