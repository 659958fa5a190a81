package store

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
)

// MaxFound bounds the objects that a search returns, whatever its limit.
const MaxFound = 10_000

// SearchBundles returns the uuids of the bundles that match a search and that a user may read, the
// oldest first unless the search has an order (codalab/model/bundle_model.py: search_bundles). It
// fails with a *keywords.Error for an invalid search. The values of terms with the key "group" are
// the uuids of groups.
func (s *Store) SearchBundles(ctx context.Context, u User, q keywords.Query) ([]string, error) {
	st, err := s.bundleSearch(u, q)
	if err != nil {
		return nil, err
	}
	var uuids []string
	query, args := st.page("bundles.uuid", q)
	err = s.db.SelectContext(ctx, &uuids, s.db.Rebind(query), args...)
	return uuids, rowError(err, "search bundles")
}

// MeasureBundles returns the number of the bundles that SearchBundles finds, as a json.Number, or the total of
// a key of theirs, as a codalab.PythonFloat; nil for the total of no bundles.
func (s *Store) MeasureBundles(ctx context.Context, u User, q keywords.Query) (any, error) {
	st, err := s.bundleSearch(u, q)
	if err != nil {
		return nil, err
	}
	if q.Sum == "" {
		return s.count(ctx, st)
	}
	key := st.bundleField(q.Sum)
	if key.number == "" {
		return nil, keywords.Refuse("Bundles have no total of %s", q.Sum)
	}
	st.where(key.present, key.sortArgs...)
	var total *float64
	query, args := st.selecting("SUM("+key.number+")", key.sortArgs)
	if err := s.db.GetContext(ctx, &total, s.db.Rebind(query), args...); err != nil || total == nil {
		return nil, rowError(err, "add up bundles")
	}
	return codalab.PythonFloat(*total), nil
}

// SearchWorksheets is SearchBundles for worksheets: the user's own come first, then those that
// changed last (codalab/model/bundle_model.py: search_worksheets).
func (s *Store) SearchWorksheets(ctx context.Context, u User, q keywords.Query) ([]Worksheet, error) {
	st, err := s.worksheetSearch(u, q)
	if err != nil {
		return nil, err
	}
	var found []Worksheet
	query, args := st.page("worksheets.*", q)
	err = s.db.SelectContext(ctx, &found, s.db.Rebind(query), args...)
	return found, rowError(err, "search worksheets")
}

// SearchUsers is SearchBundles for users. It does not check the caller's permissions
// (codalab/model/bundle_model.py: get_users).
func (s *Store) SearchUsers(ctx context.Context, q keywords.Query) ([]User, error) {
	st, err := s.userSearch(q)
	if err != nil {
		return nil, err
	}
	var found []User
	query, args := st.page("users.*", q)
	err = s.db.SelectContext(ctx, &found, s.db.Rebind(query), args...)
	return found, rowError(err, "search users")
}

// CountUsers returns the number of the users that SearchUsers finds, as a json.Number.
func (s *Store) CountUsers(ctx context.Context, q keywords.Query) (any, error) {
	st, err := s.userSearch(q)
	if err != nil {
		return nil, err
	}
	return s.count(ctx, st)
}

func (s *Store) count(ctx context.Context, st *statement) (any, error) {
	// The limit makes SQLite keep the order. With the order SQLite reads the narrow index, and
	// otherwise the rows if a condition needs the metadata.
	const all = 1 << 60
	query, args := st.page("1", keywords.Query{Limit: all})
	var n int64
	if err := s.db.GetContext(ctx, &n, s.db.Rebind(`SELECT count(*) FROM (`+query+`) AS found`), args...); err != nil {
		return nil, rowError(err, "count matches")
	}
	return json.Number(strconv.FormatInt(n, 10)), nil
}

// statement is a search of one table in SQL. Values of the search are arguments, never text.
type statement struct {
	dialect jsonDialect
	viewer  User
	table   string
	// join joins the table with another one that has at most one row for each row.
	join     string
	joinArgs []any
	conds    []string
	args     []any
	// order is the default order. It follows the search's own order, and has the same direction.
	order []orderTerm
	// first comes before the search's order.
	first     string
	firstArgs []any
}

type orderTerm struct {
	sql        string
	args       []any
	descending bool
	nulls      string // position of nulls; empty for expressions that are never null
}

// where adds a condition.
func (st *statement) where(cond string, args ...any) {
	st.conds, st.args = append(st.conds, cond), append(st.args, args...)
}

// selecting returns the statement that selects columns of all matches, in no order.
func (st *statement) selecting(columns string, columnArgs []any) (string, []any) {
	query := "SELECT " + columns + " FROM " + st.table + st.join
	if len(st.conds) > 0 {
		query += " WHERE " + strings.Join(st.conds, " AND ")
	}
	return query, slices.Concat(columnArgs, st.joinArgs, st.args)
}

// page returns the statement that selects columns of those matches that the search wants.
func (st *statement) page(columns string, q keywords.Query) (string, []any) {
	query, args := st.selecting(columns, nil)
	var by []string
	if st.first != "" {
		by, args = append(by, st.first), append(args, st.firstArgs...)
	}
	for _, o := range st.order {
		direction := ""
		if o.descending {
			direction = " DESC"
		}
		by, args = append(by, o.sql+direction+o.nulls), append(args, o.args...)
	}
	return query + " ORDER BY " + strings.Join(by, ", ") + " LIMIT ? OFFSET ?", append(args, q.Limit, q.Offset)
}

// sortBy puts a search's own order before the default one, and turns both into its direction.
func (st *statement) sortBy(sort *keywords.Sort, key field) error {
	if len(key.order) == 0 {
		return keywords.Refuse("Cannot sort by %s", sort.Key)
	}
	args := key.sortArgs
	if st.join = key.join; st.join != "" {
		st.joinArgs, args = args, nil
	} else {
		st.where(key.present, args...)
	}
	var order []orderTerm
	for _, sql := range key.order {
		order = append(order, orderTerm{sql, args, sort.Descending, cmp.Or(key.nulls, st.dialect.nulls)})
	}
	for _, o := range st.order {
		o.descending = sort.Descending
		order = append(order, o)
	}
	st.order = order
	return nil
}

// since adds the condition that a column of times in microseconds is in a search's time span. Times
// count in whole seconds.
func (st *statement) since(column string, t keywords.Term, before bool) error {
	if len(t.Values) != 1 {
		return keywords.Refuse("%s needs one time", t.Key)
	}
	at, err := keywords.ParseTime(string(t.Values[0]))
	if err != nil {
		return err
	}
	if before {
		st.where(column+" < ?", (at.Unix()+1)*1e6)
	} else {
		st.where(column+" >= ?", at.Unix()*1e6)
	}
	return nil
}

// sharedWith adds the condition that a group of the user other than "public" may read the object.
func (st *statement) sharedWith(kind Shared) {
	st.where(fmt.Sprintf(`%s.uuid IN (SELECT %s FROM %s WHERE permission > 0
		AND group_uuid IN (SELECT group_uuid FROM group_members WHERE user_id = ?))`, st.table, kind.column(), kind.table()), st.viewer.ID)
}

// owner adds the condition on the owner: by id, or by name. It finds no object of another user that
// hides its owner.
func (st *statement) owner(column string, values []keywords.Value) {
	cond, args := field{value: column}.match(st.dialect, values)
	st.where(st.ownerColumn()+" IN (SELECT id FROM users WHERE "+cond+")", args...)
	if !st.viewer.Root() {
		st.where("("+st.table+".is_anonymous = 0 OR "+st.ownerColumn()+" = ?)", st.viewer.ID)
	}
}

// ownerColumn returns an expression for the owner's id that hides the column from SQLite's choice
// of an index. The index of owners lacks the columns of the other conditions, so SQLite would read
// the long row of each bundle of the owner. The index bundles_in_order has all of them.
func (st *statement) ownerColumn() string { return "(" + st.table + ".owner_id || '')" }
