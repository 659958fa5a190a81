package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"
)

// checkFolded fails with ErrExists if another row of a table has a name that differs from this one by case
// alone, or not at all. key is the table's key. Names of before this rule, and imported ones, may differ so.
func checkFolded(ctx context.Context, q queryer, table, key, name, id string) error {
	var others int
	err := q.GetContext(ctx, &others, q.Rebind(`SELECT count(*) FROM `+table+` WHERE lower(name) = lower(?) AND `+key+` <> ?`), name, id)
	if err == nil && others > 0 {
		err = ErrExists
	}
	return rowError(err, "compare names")
}

// maxFormerNames bounds the former names of one user: nobody else can take them.
const maxFormerNames = 5

// rename checks a user's new name, and keeps the old one for the user, who may take it again. It does nothing
// if the name is the same.
func rename(ctx context.Context, tx *sqlx.Tx, u User, had string) error {
	if u.Name == had {
		return nil
	}
	if err := checkUserName(ctx, tx, u); err != nil {
		return err
	}
	if err := freeName(ctx, tx, u.Name); err != nil {
		return err
	}
	return keepName(ctx, tx, u.ID, had)
}

// CheckUserName fails with ErrExists if nobody can take a name but the operator's "user add": another user has it, or one that
// differs from it by case alone, or had it before. That user may be removed by now.
func (s *Store) CheckUserName(ctx context.Context, name string) error {
	return checkUserName(ctx, s.db, User{Name: name})
}

// checkUserName is CheckUserName for the name of a user, who may have had it before.
func checkUserName(ctx context.Context, q queryer, u User) error {
	if err := checkFolded(ctx, q, "users", "id", u.Name, u.ID); err != nil {
		return err
	}
	return checkFormer(ctx, q, u)
}

// checkFormer fails with ErrExists if another user had the name of this one before.
func checkFormer(ctx context.Context, q queryer, u User) error {
	var others int
	err := q.GetContext(ctx, &others, q.Rebind(`SELECT count(*) FROM former_names WHERE name = ? AND user_id <> ?`), fold(u.Name), u.ID)
	if err == nil && others > 0 {
		err = ErrExists
	}
	return rowError(err, "compare former names")
}

// keepName makes a name a former one of a user. It fails with ErrTooMany if the user has too many.
func keepName(ctx context.Context, tx *sqlx.Tx, id, name string) error {
	var n int
	err := tx.GetContext(ctx, &n, tx.Rebind(`SELECT count(*) FROM former_names WHERE user_id = ? AND name <> ?`), id, fold(name))
	if err == nil && n >= maxFormerNames {
		err = ErrTooMany
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, tx.Rebind(`
			INSERT INTO former_names (name, user_id) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET user_id = excluded.user_id`), fold(name), id)
	}
	return rowError(err, "keep name "+name)
}

// freeName makes a name nobody's former one.
func freeName(ctx context.Context, tx *sqlx.Tx, name string) error {
	_, err := tx.ExecContext(ctx, tx.Rebind(`DELETE FROM former_names WHERE name = ?`), fold(name))
	return rowError(err, "free name "+name)
}

// forgetUser ends the offers to a user who is about to be deleted, and keeps the user's name from others.
func forgetUser(ctx context.Context, tx *sqlx.Tx, id string) error {
	for _, kind := range []Shared{SharedBundle, SharedWorksheet} {
		if err := kind.endOffers(ctx, tx, id); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, tx.Rebind(`
		INSERT INTO former_names (name, user_id) SELECT lower(name), id FROM users WHERE id = ?
		ON CONFLICT (name) DO UPDATE SET user_id = excluded.user_id`), id)
	return rowError(err, "keep the name of user "+id)
}

// UsersNamedLike returns the users whose names differ from this one by case alone, or not at all.
func (s *Store) UsersNamedLike(ctx context.Context, name string) ([]User, error) {
	var users []User
	err := s.db.SelectContext(ctx, &users, s.db.Rebind(`SELECT * FROM users WHERE lower(name) = lower(?) ORDER BY name`), name)
	return users, rowError(err, "find users named like "+name)
}

// FormerHolder returns the user who had a name before and may take it again; ErrNotFound if there is none.
func (s *Store) FormerHolder(ctx context.Context, name string) (User, error) {
	var u User
	err := s.db.GetContext(ctx, &u, s.db.Rebind(`
		SELECT users.* FROM former_names JOIN users ON users.id = former_names.user_id WHERE former_names.name = ?`), fold(name))
	return u, rowError(err, "get the user who had the name "+name)
}

// fold is a name without regard to case. Names are ASCII, which the database's lower folds alike.
func fold(name string) string { return strings.ToLower(name) }

// AddHome adds a user's home worksheet, which readers may read. Its name may differ by case alone from
// that of another user's, since imported names of users may; ErrExists if it is taken.
func (s *Store) AddHome(ctx context.Context, w Worksheet, readers DefaultPermission) error {
	var created Event
	err := s.db.InTx(ctx, func(tx *sqlx.Tx) (err error) {
		if err := insertWorksheet(ctx, tx, w, readers); err != nil {
			return fmt.Errorf("add home worksheet: %w", err)
		}
		created, err = w.createdIn(ctx, tx)
		return err
	})
	return noteUnless(ctx, err, created)
}
