package store

import (
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
)

// bundleSearch makes the statement of a search of bundles.
func (s *Store) bundleSearch(u User, q keywords.Query) (*statement, error) {
	st := &statement{
		dialect: s.dialect(), viewer: u, table: "bundles",
		order: []orderTerm{{sql: "bundles.created"}, {sql: "bundles.uuid"}},
	}
	for _, t := range q.Terms {
		if err := st.bundleTerm(t); err != nil {
			return nil, err
		}
	}
	if q.Sort != nil {
		if err := st.sortBy(q.Sort, st.bundleField(q.Sort.Key)); err != nil {
			return nil, err
		}
	}
	if !u.Root() {
		st.where(`(bundles.public > 0 OR `+st.ownerColumn()+` = ? OR bundles.uuid IN (
			SELECT bundle_uuid FROM bundle_permissions WHERE permission > 0
				AND group_uuid IN (SELECT group_uuid FROM group_members WHERE user_id = ?)))`, u.ID, u.ID)
	}
	return st, nil
}

// bundleTerm adds a condition on bundles.
func (st *statement) bundleTerm(t keywords.Term) error {
	switch {
	case codalab.IsFileValue(t.Key):
		st.value(t)
		return nil
	case t.Op == "!=":
		return st.unlike(t)
	case t.Op != "":
		return st.compare(t)
	}
	switch t.Key {
	case ".mine":
		st.where(st.ownerColumn()+" = ?", st.viewer.ID)
	case ".notmine":
		st.where(st.ownerColumn()+" <> ?", st.viewer.ID)
	case ".shared":
		st.sharedWith(SharedBundle)
	case ".floating":
		st.where(`NOT EXISTS (SELECT 1 FROM worksheet_items AS i WHERE i.bundle_uuid = bundles.uuid)`)
	case ".before", ".after":
		return st.since("bundles.created", t, t.Key == ".before")
	case "owner":
		st.owner("name", t.Values)
	case "owner_id":
		st.owner("id", t.Values)
	case "group":
		cond, args := field{
			value: "group_uuid", exact: true,
			within: "bundles.uuid IN (SELECT bundle_uuid FROM bundle_permissions WHERE permission > 0 AND $)",
		}.match(st.dialect, t.Values)
		st.where(cond, args...)
	case keywords.Word:
		st.anyOf(t.Values, uuidPart("bundles.uuid", t.Values), column("bundles.name"))
	case keywords.Any:
		st.anyOf(t.Values, column("bundles.uuid"), column("bundles.command"),
			field{value: "j.value", within: strings.ReplaceAll(st.dialect.hasAny, "@", "bundles.metadata")})
	case "tags":
		st.tags(t.Values)
	default:
		cond, args := st.bundleField(t.Key).match(st.dialect, t.Values)
		st.where(cond, args...)
	}
	return nil
}

// bundleField is a key of bundles: one that CodaLab's own server treats as special, or a key of their
// metadata.
func (st *statement) bundleField(key string) field {
	if codalab.IsFileValue(key) {
		return valueField(key)
	}
	switch key {
	case "type", "bundle_type":
		return exactColumn("bundles.bundle_type")
	case "uuid":
		return exactColumn("bundles.uuid")
	case "state":
		return exactColumn("bundles.state")
	case "command":
		return column("bundles.command")
	case "name":
		return column("bundles.name")
	case "id": // bundles have no numbers; like CodaLab's, these increase with time
		return numberColumn("bundles.created")
	case "created":
		f := numberColumn("(bundles.created / 1000000)")
		f.order = []string{"bundles.created"}
		return f
	case "size", "data_size":
		return numberColumn("bundles.data_size")
	case "time":
		f := st.dialect.jsonKey("bundles.metadata", key)
		c := numberColumn("bundles.run_time")
		f.order, f.present, f.number, f.sortArgs = c.order, c.present, c.number+" / 1000000", nil
		return f
	case "owner", "owner_id", "group":
		return field{} // neither order nor total
	case "worksheet", "host_worksheet":
		return st.hostField()
	}
	if key == "dependency" || strings.HasPrefix(key, "dependency/") {
		return dependencyField(key)
	}
	return st.dialect.jsonKey("bundles.metadata", key)
}

// dependencyField is the uuids of the bundles that a bundle depends on, or of the one that it has
// under a path: "dependency/PATH".
func dependencyField(key string) field {
	f := field{
		value: "d.parent_uuid", exact: true,
		within: "bundles.uuid IN (SELECT d.child_uuid FROM dependencies AS d WHERE $)",
	}
	if path, found := strings.CutPrefix(key, "dependency/"); found {
		f.within = "bundles.uuid IN (SELECT d.child_uuid FROM dependencies AS d WHERE d.child_path = ? AND $)"
		f.withinArgs = []any{path}
		f.sortArgs = f.withinArgs
		f.order = []string{"(SELECT min(d.parent_uuid) FROM dependencies AS d WHERE d.child_uuid = bundles.uuid AND d.child_path = ?)"}
		f.present = f.order[0] + " IS NOT NULL"
		return f
	}
	f.order = []string{"(SELECT min(d.parent_uuid) FROM dependencies AS d WHERE d.child_uuid = bundles.uuid)"}
	f.present = f.order[0] + " IS NOT NULL"
	return f
}

// hostField is the uuids of the worksheets that show a bundle and that the user may read.
func (st *statement) hostField() field {
	from := " FROM worksheet_items AS i WHERE "
	var args []any
	if !st.viewer.Root() {
		var readable string
		readable, args = SharedWorksheet.readable(st.viewer)
		from += "i.worksheet_uuid IN (SELECT uuid FROM worksheets WHERE " + readable + ") AND "
	}
	f := field{
		value: "i.worksheet_uuid", exact: true, withinArgs: args, sortArgs: args,
		within: "(bundles.uuid || '') IN (SELECT i.bundle_uuid" + from + "$)", // as in ownerColumn
		order:  []string{"(SELECT min(i.worksheet_uuid)" + from + "i.bundle_uuid = bundles.uuid)"},
	}
	f.present = f.order[0] + " IS NOT NULL"
	return f
}

// tags adds the condition that a bundle has one of some tags. The column has the tags of most
// bundles. Only a wildcard needs the metadata, too, because it may match several tags in the column.
func (st *statement) tags(values []keywords.Value) {
	listed := func(table string) field { return st.dialect.jsonKey(table+".metadata", "tags") }
	var around []keywords.Value
	wild := false
	for _, v := range values {
		around = append(around, "%\n"+v+"\n%")
		wild = wild || v.Wild()
	}
	inColumn, args := column("bundles.tags").match(st.dialect, around)
	inMany, manyArgs := listed("b").match(st.dialect, values)
	st.where("("+inColumn+" OR bundles.uuid IN (SELECT b.uuid FROM bundles AS b WHERE b.tags = '"+manyTags+"' AND "+inMany+"))",
		append(args, manyArgs...)...)
	if wild {
		cond, args := listed("bundles").match(st.dialect, values)
		st.where(cond, args...)
	}
}

// anyOf adds the condition that one of the fields has one of the values.
func (st *statement) anyOf(values []keywords.Value, fields ...field) {
	var conds []string
	var all []any
	for _, f := range fields {
		if f.value == "" {
			continue
		}
		cond, args := f.match(st.dialect, values)
		conds, all = append(conds, cond), append(all, args...)
	}
	st.where("("+or(conds)+")", all...)
}

// uuidPart is a column of uuids for a search of the values in it. It is no field at all if no uuid
// has them, so that most words are looked for in names only.
func uuidPart(sql string, values []keywords.Value) field {
	for _, v := range values {
		if strings.Trim(strings.ToLower(string(v)), "0123456789abcdefx%") != "" {
			return field{}
		}
	}
	return column(sql)
}
