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
