package store

import (
	"math"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/keywords"
)

// worksheetSearch makes the statement of a search of worksheets.
func (s *Store) worksheetSearch(u User, q keywords.Query) (*statement, error) {
	st := &statement{
		dialect: s.dialect(), viewer: u, table: "worksheets",
		first: "CASE WHEN worksheets.owner_id = ? THEN 0 ELSE 1 END", firstArgs: []any{u.ID},
		order: []orderTerm{{sql: "worksheets.modified", descending: true}, {sql: "worksheets.name"}},
	}
	for _, t := range q.Terms {
		if err := st.worksheetTerm(t); err != nil {
			return nil, err
		}
	}
	if q.Aggregate() {
		return nil, keywords.Refuse("Worksheets cannot be counted or added up")
	}
	if q.Sort != nil {
		key, err := worksheetField(st.dialect, q.Sort.Key)
		if err == nil {
			st.order = []orderTerm{{sql: "worksheets.name"}}
			err = st.sortBy(q.Sort, key)
		}
		if err != nil {
			return nil, err
		}
	}
	readable, args := SharedWorksheet.readable(u)
	st.where(readable, args...)
	return st, nil
}

// worksheetTerm adds a condition on worksheets.
func (st *statement) worksheetTerm(t keywords.Term) error {
	switch t.Key {
	case ".mine":
		st.where("worksheets.owner_id = ?", st.viewer.ID)
	case ".notmine":
		st.where("worksheets.owner_id <> ?", st.viewer.ID)
	case ".shared":
		st.sharedWith(SharedWorksheet)
	case "owner":
		st.owner("name", t.Values)
	case "owner_id":
		st.owner("id", t.Values)
	case keywords.Word:
		st.anyOf(t.Values, column("worksheets.uuid"), column("worksheets.name"), column("worksheets.title"))
	case keywords.Any:
		st.anyOf(t.Values, column("worksheets.uuid"), column("worksheets.name"), column("worksheets.title"),
			itemField("value", false))
	default:
		f, err := worksheetField(st.dialect, t.Key)
		if err != nil {
			return err
		}
		cond, args := f.match(st.dialect, t.Values)
		st.where(cond, args...)
	}
	return nil
}

// worksheetField is a key of worksheets.
func worksheetField(d jsonDialect, key string) (field, error) {
	switch key {
	case "id": // worksheets have no numbers; like CodaLab's, these increase with time
		return numberColumn("worksheets.created"), nil
	case "uuid":
		return exactColumn("worksheets.uuid"), nil
	case "name":
		return column("worksheets.name"), nil
	case "title":
		return column("worksheets.title"), nil
	case "group":
		return field{
			value: "group_uuid", exact: true,
			within: "worksheets.uuid IN (SELECT worksheet_uuid FROM worksheet_permissions WHERE permission > 0 AND $)",
		}, nil
	case "bundle":
		return itemField("bundle_uuid", true), nil
	case "worksheet":
		return itemField("subworksheet_uuid", true), nil
	case "tag":
		return field{value: "j.value", within: strings.ReplaceAll(d.list, "@", "worksheets.tags")}, nil
	case "owner", "owner_id":
		return field{}, nil // no order
	}
	return field{}, keywords.Refuse("Unknown key: %s", key)
}

// itemField is a column of a worksheet's items.
func itemField(column string, exact bool) field {
	return field{
		value: "i." + column, exact: exact,
		within: "worksheets.uuid IN (SELECT i.worksheet_uuid FROM worksheet_items AS i WHERE $)",
	}
}

// userSearch makes the statement of a search of users.
func (s *Store) userSearch(q keywords.Query) (*statement, error) {
	st := &statement{
		dialect: s.dialect(), table: "users",
		order: []orderTerm{{sql: "users.joined"}, {sql: "users.id"}},
	}
	for _, t := range q.Terms {
		if err := st.userTerm(t); err != nil {
			return nil, err
		}
	}
	if q.Sum != "" {
		return nil, keywords.Refuse("Users have no total of %s", q.Sum)
	}
	if q.Sort != nil {
		f, err := userField(q.Sort.Key)
		if err == nil {
			err = st.sortBy(q.Sort, f)
		}
		if err != nil {
			return nil, err
		}
	}
	return st, nil
}

// userTerm adds a condition on users.
func (st *statement) userTerm(t keywords.Term) error {
	switch t.Key {
	case ".joined_before", ".joined_after":
		return st.since("users.joined", t, t.Key == ".joined_before")
	case ".active_before", ".active_after":
		st.where("users.last_login <> 0") // 0 is never
		return st.since("users.last_login", t, t.Key == ".active_before")
	case ".disk_used_less_than", ".disk_used_more_than":
		return st.share("disk", t, strings.HasSuffix(t.Key, "less_than"))
	case ".time_used_less_than", ".time_used_more_than":
		return st.share("time", t, strings.HasSuffix(t.Key, "less_than"))
	case keywords.Word, keywords.Any:
		st.anyOf(t.Values, column("users.id"), column("users.name"), column("users.first_name"), column("users.last_name"))
		return nil
	}
	f, err := userField(t.Key)
	if err != nil {
		return err
	}
	cond, args := f.match(st.dialect, t.Values)
	st.where(cond, args...)
	return nil
}

// share adds the condition that a user has used at most, or at least, a share of a quota: a
// number such as 0.3, or a percentage.
func (st *statement) share(of string, t keywords.Term, most bool) error {
	text, percent := strings.CutSuffix(string(append(t.Values, "")[0]), "%")
	part, err := strconv.ParseFloat(text, 64)
	if err != nil || len(t.Values) != 1 || math.IsNaN(part) || math.IsInf(part, 0) {
		return keywords.Refuse("%s needs a number or percents, such as 0.3 or 70%%", t.Key)
	}
	if percent {
		part /= 100
	}
	operator := ">="
	if most {
		operator = "<="
	}
	used, quota := "users."+of+"_used", "users."+of+"_quota"
	st.where(quota+" > 0 AND CAST("+used+" AS DOUBLE PRECISION) / "+quota+" "+operator+" CAST(? AS DOUBLE PRECISION)", part)
	return nil
}

// userField is a key of users. CodaLab's own server documents also name, url and date_joined, but
// refuses them.
func userField(key string) (field, error) {
	switch key {
	case "id": // users have no numbers; like CodaLab's, these increase with time
		return numberColumn("users.joined"), nil
	case "user_id":
		return column("users.id"), nil
	case "user_name", "name":
		return column("users.name"), nil
	case "email", "first_name", "last_name", "affiliation", "url":
		return column("users." + key), nil
	case "date_joined":
		return numberColumn("(users.joined / 1000000)"), nil
	case "last_login":
		return numberColumn("(users.last_login / 1000000)"), nil
	case "time_quota", "parallel_run_quota", "time_used", "disk_quota", "disk_used":
		return numberColumn("users." + key), nil
	}
	return field{}, keywords.Refuse("Unknown key: %s", key)
}
