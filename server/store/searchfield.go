package store

import (
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/server/keywords"
)

// field is a key of a search in SQL.
type field struct {
	// value is the value that a term's values are compared with.
	value string
	// within is the condition on an object of which "$" is the condition on value, with arguments
	// before those of the latter; empty for value's own condition.
	within     string
	withinArgs []any
	// exact values are lower-case texts without wildcards mostly, which an index can find. Others
	// are compared as MySQL compares texts, without regard to case.
	exact bool
	// whole values are integers.
	whole bool

	// order are the expressions by which the key sorts; none if it does not. number is the
	// expression that adds up; empty if the key has no total. present is the condition that an
	// object has the key. Each of them has the arguments sortArgs.
	order    []string
	number   string
	present  string
	sortArgs []any
	// join is a join with sortArgs that order needs, and that keeps only objects with the key; then order has no arguments.
	join string
	// nulls is the position of nulls in order, if it is not the database's.
	nulls string
}

// column returns the field of a key whose values are texts of a column.
func column(sql string) field {
	return field{value: sql, order: []string{sql}, present: sql + " IS NOT NULL"}
}

// exactColumn returns the field of a key whose values are lower-case texts of a column.
func exactColumn(sql string) field {
	f := column(sql)
	f.exact = true
	return f
}

// numberColumn returns the field of a key whose values are integers.
func numberColumn(sql string) field {
	f := column(sql)
	f.whole, f.number = true, "CAST("+sql+" AS DOUBLE PRECISION)"
	return f
}

// match returns the condition that an object has one of the values, and its arguments.
func (f field) match(d jsonDialect, values []keywords.Value) (cond string, args []any) {
	text := f.value
	if f.whole {
		text = "CAST(" + f.value + " AS TEXT)"
	}
	var conds []string
	var same []any
	for _, v := range values {
		n, err := strconv.ParseInt(string(v), 10, 64)
		switch {
		case v.Wild() || len(values) == 1 && !f.exact && !f.whole:
			conds, args = append(conds, text+" "+d.like+` ? ESCAPE '\'`), append(args, v.Pattern())
		case f.exact:
			same = append(same, strings.ToLower(string(v)))
		case !f.whole: // the database knows its own lower case
			same = append(same, string(v))
		case err == nil:
			same = append(same, n)
		}
	}
	if len(same) > 0 {
		in := f.value + " IN (?" + strings.Repeat(", ?", len(same)-1) + ")"
		if !f.exact && !f.whole {
			in = "lower(" + f.value + ") IN (lower(?)" + strings.Repeat(", lower(?)", len(same)-1) + ")"
		}
		conds, args = append(conds, in), append(args, same...)
	}
	cond = "(" + or(conds) + ")"
	if f.within == "" {
		return cond, args
	}
	return strings.Replace(f.within, "$", cond, 1), append(append([]any{}, f.withinArgs...), args...)
}

// or joins conditions by OR, as a balanced tree: databases bound the depth of an expression.
func or(conds []string) string {
	switch n := len(conds); n {
	case 0:
		return "1 = 0"
	case 1:
		return conds[0]
	default:
		return "(" + or(conds[:n/2]) + " OR " + or(conds[n/2:]) + ")"
	}
}

// jsonDialect holds the differences between SQLite and PostgreSQL in searches.
type jsonDialect struct {
	// like is LIKE without regard to case.
	like string
	// has is the condition that a key of a JSON object in the column "@" has a value, a list's
	// elements being its values, for which the condition "$" holds. Its argument names the key.
	has string
	// value is the expression that has compares.
	value string
	// hasAny is has for all keys together, without an argument.
	hasAny string
	// list is hasAny for a JSON list.
	list string
	// order, number and present are those of a field, of a key of the JSON object in "@".
	order           []string
	number, present string
	// nulls puts nulls, of which order may have some, behind other values.
	nulls string
	// raw is the JSON text of a key's value; null if the object does not have the key. legible is the condition that raw
	// can read the object; empty if it always can.
	raw, legible string
	// key returns the argument that names a key.
	key func(string) any
}

func sqliteJSON() jsonDialect {
	return jsonDialect{
		like:    "LIKE",
		has:     `EXISTS (SELECT 1 FROM json_each(@, ?) AS j WHERE $)`,
		value:   `CASE j.type WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' ELSE CAST(j.value AS TEXT) END`,
		hasAny:  `EXISTS (SELECT 1 FROM json_each(@) AS j WHERE $)`,
		list:    `EXISTS (SELECT 1 FROM json_each(@) AS j WHERE $)`,
		order:   []string{`@ ->> ?`},
		number:  `CAST(@ ->> ? AS REAL)`,
		present: `@ ->> ? IS NOT NULL`,
		raw:     `(@ -> ?)`,
		key:     func(key string) any { return `$."` + key + `"` },
	}
}

// postgresJSON leaves out metadata with null characters, which jsonb cannot hold.
func postgresJSON() jsonDialect {
	const (
		object = `(CASE WHEN strpos(@, '\u0000') = 0 THEN @ ELSE '{}' END)::jsonb`
		value  = `(` + object + ` -> CAST(? AS TEXT))`
	)
	return jsonDialect{
		like: "ILIKE",
		has: `EXISTS (SELECT 1 FROM (SELECT ` + value + ` AS v) AS k, jsonb_array_elements_text(
			CASE jsonb_typeof(k.v) WHEN 'array' THEN k.v ELSE jsonb_build_array(k.v) END) AS j WHERE $)`,
		value:   `j.value`,
		hasAny:  `EXISTS (SELECT 1 FROM jsonb_each_text(` + object + `) AS j WHERE $)`,
		list:    `EXISTS (SELECT 1 FROM jsonb_array_elements_text(@::jsonb) AS j WHERE $)`,
		order:   []string{numberOr(value, "NULL"), `(` + value + ` #>> '{}')`},
		number:  numberOr(value, "0"),
		present: `(` + value + ` #>> '{}') IS NOT NULL`,
		nulls:   " NULLS LAST",
		legible: `strpos(@, '\u0000') = 0`,
		raw:     `(@::json -> CAST(? AS TEXT))::text`,
		key:     func(key string) any { return key },
	}
}

// numberOr returns the number that a jsonb value is, or another expression for other values.
func numberOr(value, other string) string {
	return `(SELECT CASE jsonb_typeof(k.v) WHEN 'number' THEN CAST(k.v #>> '{}' AS DOUBLE PRECISION) ELSE ` + other +
		` END FROM (SELECT ` + value + ` AS v) AS k)`
}

// dialect returns the dialect of the store's database.
func (s *Store) dialect() jsonDialect {
	if s.db.DriverName() == "postgres" {
		return postgresJSON()
	}
	return sqliteJSON()
}

// jsonKey is a key of the JSON object in a column.
func (d jsonDialect) jsonKey(column, key string) field {
	at := func(sql string) string { return strings.ReplaceAll(sql, "@", column) }
	f := field{value: d.value, within: at(d.has), withinArgs: []any{d.key(key)}, number: at(d.number), present: at(d.present), sortArgs: []any{d.key(key)}}
	for _, sql := range d.order {
		f.order = append(f.order, at(sql))
	}
	return f
}
