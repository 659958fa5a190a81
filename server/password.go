package server

import (
	"github.com/cl-slurm/cl-slurm/server/signin"
)

// PasswordCost is the work of hashing a password.
type PasswordCost = signin.PasswordCost

// DefaultPasswordCost is the cost of a server that has none in its Config.
func DefaultPasswordCost() PasswordCost { return signin.DefaultPasswordCost() }

// HashPassword returns the hash of a password for the store.
func HashPassword(password string, cost PasswordCost) string {
	return signin.HashPassword(password, cost)
}

// CheckPasswordHash refuses a text that HashPassword does not return.
func CheckPasswordHash(hashed string) error { return signin.CheckPasswordHash(hashed) }

// CheckNewPassword refuses a new password that is easy to guess.
func CheckNewPassword(password, user string) error { return signin.CheckNewPassword(password, user) }

// ResetPath is the path of the page on which a user sets a new password by a one-time code.
const ResetPath = signin.ResetPath

// ResetLife is the time for which a one-time code is valid.
const ResetLife = signin.ResetLife

// NewResetCode returns a one-time code, and its hash for the store.
func NewResetCode() (code, hash string) { return signin.NewResetCode() }
