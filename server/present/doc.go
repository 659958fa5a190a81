// Package present makes of stored bundles the objects that clients see. It depends on its arguments only.
package present
