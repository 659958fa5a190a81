package store

import "context"

// Owner is the owner of a bundle, as a worker's user may know one.
type Owner struct {
	Name string
	// Groups are the names of the groups that the owner owns or is a member of, sorted.
	Groups []string
}

// Owners returns the owners with these ids, by id, with those of their groups that a viewer may know: groups of the
// viewer's own; of a worker account, the groups in its scopes. The root user, and a worker account for everybody's
// bundles, may know all.
func (s *Store) Owners(ctx context.Context, viewer string, ids []string) (map[string]Owner, error) {
	users, err := s.UsersByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	groups, err := selectIn[struct {
		Owner string `db:"owner"`
		Name  string `db:"name"`
	}](ctx, s.db, ids, `
		SELECT DISTINCT u.id AS owner, g.name FROM users u
			JOIN groups g ON g.owner_id = u.id OR g.uuid IN (SELECT group_uuid FROM group_members WHERE user_id = u.id)
		WHERE u.id IN (?) AND g.uuid <> ? AND (? = '`+RootID+`' OR g.owner_id = ?
			OR g.uuid IN (SELECT group_uuid FROM group_members WHERE user_id = ?)
			OR EXISTS (SELECT 1 FROM worker_scopes w WHERE w.user_id = ?
				AND (w.group_uuid = g.uuid OR w.group_uuid = '' AND w.owner_id = '')))
		ORDER BY g.name`, PublicGroup, viewer, viewer, viewer, viewer)
	if err != nil {
		return nil, rowError(err, "list groups of owners")
	}
	owners := make(map[string]Owner, len(users))
	for id, u := range users {
		owners[id] = Owner{Name: u.Name}
	}
	for _, g := range groups {
		o := owners[g.Owner]
		o.Groups = append(o.Groups, g.Name)
		owners[g.Owner] = o
	}
	return owners, nil
}
