package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/vault"
)

// secretsKeyFlag adds the flag --secrets-key.
func secretsKeyFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().StringVar(path, "secrets-key", "", "the `file` with the key that encrypts users' secrets; it is made for the first secret (default: secrets-key in the data directory)")
}

// checkSecretsKey examines the key before the server serves. Secrets that the key does not open cannot be used: their
// owners have to set them again. If the operator names the file, a missing one is a mistake.
func checkSecretsKey(ctx context.Context, data *store.Store, path string, log *slog.Logger) error {
	id := ""
	key, err := vault.ReadKey(cmp.Or(path, data.SecretsKeyPath()))
	switch {
	case err == nil:
		id = key.ID()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	lost, err := data.OtherSecrets(ctx, id)
	switch {
	case err != nil || lost == 0:
		return err
	case id == "" && path != "":
		return fmt.Errorf("--secrets-key: there is no file %s, and the database has %d secrets that were encrypted with a key", path, lost)
	}
	log.LogAttrs(ctx, slog.LevelWarn, "users' secrets are encrypted with another key than the server's: put that key back, or their owners have to set them again",
		slog.Int("secrets", lost), slog.String("file", cmp.Or(path, data.SecretsKeyPath())))
	return nil
}

func secretsCommand(ctx context.Context, p program.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Change the key of users' secrets", Args: program.WrongUsage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(rekeyCommand(ctx, p))
	return cmd
}

func rekeyCommand(ctx context.Context, p program.Process) *cobra.Command {
	var at dataLocation
	var path string
	cmd := &cobra.Command{
		Use: "rekey --data DIRECTORY", Short: "Encrypt users' secrets with a new key", Args: program.WrongUsage(cobra.NoArgs),
		Long: `Make a new key, encrypt all secrets with it, and put it in the place of the old
key. No server may run on the data meanwhile. A second try finishes an
interrupted one. Backups that were made before need the old key.`,
		RunE: func(*cobra.Command, []string) error {
			return at.withExisting(ctx, func(data *store.Store) error {
				unlock, err := data.Lock(ctx)
				if err != nil {
					return err
				}
				n, lost, err := rekey(ctx, data, cmp.Or(path, data.SecretsKeyPath()))
				if err := errors.Join(err, unlock()); err != nil {
					return err
				}
				text := fmt.Sprintf("%d secrets are encrypted with a new key.\n", n)
				if lost > 0 {
					text += fmt.Sprintf("%d secrets stay as they are, because this was not their key: their owners have to set them again.\n", lost)
				}
				return p.Print(false, nil, text)
			})
		},
	}
	at.flags(cmd)
	secretsKeyFlag(cmd, &path)
	return cmd
}

// rekey replaces the key in the file at path. The new one waits beside it until all secrets are encrypted with it, so that
// a crash loses no key that some secret needs. It returns the number of secrets that the new key opens, and of those that
// an earlier key had sealed, which are lost.
func rekey(ctx context.Context, data *store.Store, path string) (n, lost int, err error) {
	old, err := vault.ReadKey(path)
	if err != nil {
		return 0, 0, err
	}
	next := path + ".new"
	if _, err := os.Lstat(next); errors.Is(err, fs.ErrNotExist) {
		if err := atomicfile.Write(next, []byte(vault.NewKeyText()), 0o600); err != nil {
			return 0, 0, fmt.Errorf("make a key: %w", err)
		}
	}
	key, err := vault.ReadKey(next)
	if err != nil {
		return 0, 0, err
	}
	n, err = data.SealSecrets(ctx, func(s store.Secret) (store.Secret, error) {
		if s.KeyID != old.ID() { // of an interrupted try, or of an earlier key
			return s, nil
		}
		value, err := old.Open(s.UserID, s.Name, s.Sealed)
		if err != nil {
			return s, err
		}
		s.Sealed, s.KeyID = key.Seal(s.UserID, s.Name, value), key.ID()
		return s, nil
	})
	if err == nil {
		lost, err = data.OtherSecrets(ctx, key.ID())
	}
	if err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(next)
	if err == nil {
		err = atomicfile.Write(path, text, 0o600)
	}
	if err == nil {
		err = os.Remove(next)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("put the new key in its place: %w", err)
	}
	return n - lost, lost, nil
}
