// Package accounts serves users and groups. Users see and change their own accounts, and root those of all.
package accounts
