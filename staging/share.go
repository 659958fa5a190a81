package staging

import (
	"context"
)

// private says whether a bundle's contents are to be kept to this user in a
// cache that a group shares: unless the server says that anyone may read them.
func (s *Stager) private(ctx context.Context, bundle string) bool {
	if s.Public == nil {
		return true
	}
	public, err := s.Public(ctx, bundle)
	return err != nil || !public
}
