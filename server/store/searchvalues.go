package store

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
)

// valueField is a value in a file. Numbers sort before texts, in both directions: a diverged run, whose loss is NaN, comes
// last.
func valueField(path string) field {
	return field{
		order: []string{"o.number", "o.text"}, nulls: " NULLS LAST", sortArgs: []any{path},
		join:    " JOIN bundle_values AS o ON o.bundle_uuid = bundles.uuid AND o.path = ?",
		number:  "(SELECT v.number FROM bundle_values AS v WHERE v.bundle_uuid = bundles.uuid AND v.path = ?)",
		present: havingValue("1 = 1"),
	}
}

// havingValue is the condition that a bundle has a value of a path, the first argument, for which a condition holds.
func havingValue(cond string) string {
	return "bundles.uuid IN (SELECT v.bundle_uuid FROM bundle_values AS v WHERE v.path = ? AND " + cond + ")"
}

// value adds a condition on a value in a file.
func (st *statement) value(t keywords.Term) {
	switch {
	case len(t.Values) == 0 && t.Op == "":
		st.where(havingValue("1 = 1"), t.Key)
	case len(t.Values) == 0:
		st.where(havingValue("v.number "+t.Op+" ?"), t.Key, t.Bound)
	default:
		cond, args := st.sameValue(t.Values)
		if t.Op == "!=" {
			cond = "NOT " + cond
		}
		st.where(havingValue(cond), append([]any{t.Key}, args...)...)
	}
}

// sameValue is the condition that a value is one of some: the same number, or the same text.
func (st *statement) sameValue(values []keywords.Value) (string, []any) {
	var conds []string
	var args []any
	for _, v := range values {
		n, err := strconv.ParseFloat(string(v), 64)
		if err == nil && !math.IsNaN(n) && !math.IsInf(n, 0) {
			conds, args = append(conds, "(v.number IS NOT NULL AND v.number = ?)"), append(args, n)
		} else {
			conds, args = append(conds, "v.text "+st.dialect.like+` ? ESCAPE '\'`), append(args, v.Pattern())
		}
	}
	return "(" + or(conds) + ")", args
}

// compare adds the condition that a key's number is on one side of another.
func (st *statement) compare(t keywords.Term) error {
	f := st.bundleField(t.Key)
	isNumber := slices.Contains([]string{"id", "size"}, t.Key) || slices.ContainsFunc(codalab.MetadataKeys(codalab.TypeRun), func(k codalab.MetadataKey) bool {
		return k.Key == t.Key && (k.Type == codalab.TypeInt || k.Type == codalab.TypeFloat)
	})
	if f.number == "" || !isNumber {
		return keywords.Refuse("%s is no number that %s can compare", t.Key, t.Op)
	}
	st.where(f.present, f.sortArgs...)
	st.where(f.number+" "+t.Op+" ?", append(slices.Clone(f.sortArgs), t.Bound)...)
	return nil
}

// unlike adds the condition that a key has none of some values.
func (st *statement) unlike(t keywords.Term) error {
	if strings.HasPrefix(t.Key, ".") {
		return keywords.Refuse("%s takes no !=", t.Key)
	}
	n := len(st.conds)
	if err := st.bundleTerm(keywords.Term{Key: t.Key, Values: t.Values}); err != nil {
		return err
	}
	none := "NOT COALESCE((" + strings.Join(st.conds[n:], " AND ") + "), 1 = 0)"
	st.conds = append(slices.Clone(st.conds[:n]), none)
	return nil
}
