// Package accounts serves users and groups, and the list of what is offered to a user. Users see and change their own
// accounts, and root those of all.
package accounts
