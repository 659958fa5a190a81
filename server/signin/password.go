package signin

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
)

// PasswordCost is the work of one check of a password (RFC 9106, section 4).
type PasswordCost struct {
	Passes uint32
	KiB    uint32 // of memory
}

// DefaultPasswordCost takes some 50 ms of one core.
func DefaultPasswordCost() PasswordCost { return PasswordCost{Passes: 3, KiB: 64 << 10} }

// HashPassword hashes a password by Argon2id, in the PHC string format:
// $argon2id$v=19$m=KIB,t=PASSES,p=1$SALT$HASH.
func HashPassword(password string, cost PasswordCost) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return cost.hash(password, salt)
}

const argonPrefix = "$argon2id$v=19$"

func (c PasswordCost) hash(password string, salt []byte) string {
	return c.format(salt, argon2.IDKey([]byte(password), salt, c.Passes, c.KiB, 1, argonLength))
}

const argonLength = 32

func (c PasswordCost) format(salt, sum []byte) string {
	return fmt.Sprintf("%sm=%d,t=%d,p=1$%s$%s", argonPrefix, c.KiB, c.Passes,
		base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(sum))
}

// hashOfNobody returns a random hash that takes as long to check as one that HashPassword makes, and that no
// password is known to fit.
func hashOfNobody(cost PasswordCost) string {
	salt, sum := make([]byte, 16), make([]byte, argonLength)
	_, _ = rand.Read(salt) // never fails
	_, _ = rand.Read(sum)
	return cost.format(salt, sum)
}

// CheckPasswordHash returns an error unless passwords can be checked against a hash that was made
// elsewhere.
func CheckPasswordHash(hashed string) error {
	if strings.HasPrefix(hashed, argonPrefix) {
		_, _, err := parseArgon(hashed)
		return err
	}
	_, _, _, err := parseStock(hashed)
	return err
}

// passwordFits reports whether hashed is a hash of password. outdated is set if it is not one that
// HashPassword makes now.
func passwordFits(password, hashed string, cost PasswordCost) (fits, outdated bool) {
	if strings.HasPrefix(hashed, argonPrefix) {
		made, salt, err := parseArgon(hashed)
		return err == nil && sameText(made.hash(password, salt), hashed), made != cost
	}
	iterations, salt, want, err := parseStock(hashed)
	if err != nil {
		return false, true
	}
	got, err := pbkdf2.Key(sha256.New, password, salt, iterations, len(want))
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1, true
}

func sameText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

var errHash = errors.New("not a hash of a password: want $argon2id$v=19$… or pbkdf2_sha256$…")

func parseArgon(hashed string) (cost PasswordCost, salt []byte, err error) {
	parts := strings.Split(strings.TrimPrefix(hashed, argonPrefix), "$")
	if len(parts) != 3 {
		return cost, nil, errHash
	}
	if _, err := fmt.Sscanf(parts[0], "m=%d,t=%d,p=1", &cost.KiB, &cost.Passes); err != nil {
		return cost, nil, errHash
	}
	salt, err = base64.RawStdEncoding.DecodeString(parts[1])
	if err != nil || cost.Passes < 1 || cost.Passes > 100 || cost.KiB > 1<<20 || len(salt) < 8 {
		return cost, nil, errHash
	}
	return cost, salt, nil
}

// parseStock reads a hash of CodaLab's own server, whose users keep their passwords here:
// pbkdf2_sha256$ITERATIONS$SALT$BASE64 (codalab/lib/crypt_util.py).
func parseStock(hashed string) (iterations int, salt, sum []byte, err error) {
	parts := strings.Split(hashed, "$")
	if len(parts) != 4 || parts[0] != "pbkdf2_sha256" {
		return 0, nil, nil, errHash
	}
	iterations, err = strconv.Atoi(parts[1])
	sum, decodeErr := base64.StdEncoding.DecodeString(parts[3])
	if err != nil || decodeErr != nil || len(sum) < 16 || iterations < 1 || iterations > 10_000_000 {
		return 0, nil, nil, errHash
	}
	return iterations, []byte(parts[2]), sum, nil
}
