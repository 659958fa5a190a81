package codalab

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
)

// ProgramTokenPrefix begins every program token, so that scanners of code and logs find one:
//
//	clp_ID_SECRETCHECKSUM        clp_[a-z2-7]{10}_[A-Z2-7]{33}
//
// A program token lets a bridge, a stand-alone worker or a worker manager in without a password. The ID is no secret: it
// names the token in lists and logs. The checksum tells a whole token from a part of one without asking a server.
const ProgramTokenPrefix = "clp_"

const (
	programIDLength     = 10
	programSecretLength = 26 // 130 bits
	programSumLength    = 7
)

// ErrProgramToken is the error of a text that is no whole program token.
var ErrProgramToken = errors.New("it is no whole token: a token begins with " + ProgramTokenPrefix + ", and has 48 characters")

// NewProgramToken returns a new token with its id.
func NewProgramToken() (token, id string) {
	id = strings.ToLower(rand.Text()[:programIDLength])
	secret := ProgramTokenPrefix + id + "_" + rand.Text()[:programSecretLength]
	return secret + programSum(secret), id
}

// programSum returns the checksum of a token's other characters.
func programSum(text string) string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text)))
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum)
}

// ProgramTokenID returns the id of a program token. It fails with ErrProgramToken for any other text.
func ProgramTokenID(token string) (id string, err error) {
	const whole = len(ProgramTokenPrefix) + programIDLength + 1 + programSecretLength + programSumLength
	if !IsProgramToken(token) || len(token) != whole || programSum(token[:whole-programSumLength]) != token[whole-programSumLength:] {
		return "", ErrProgramToken
	}
	return token[len(ProgramTokenPrefix):][:programIDLength], nil
}

// IsProgramToken reports whether a text is meant as a program token: it has the prefix.
func IsProgramToken(text string) bool { return strings.HasPrefix(text, ProgramTokenPrefix) }

// ProgramTokenRequest requests a program token: POST /program_tokens. CodaLab's own server has no such route.
type ProgramTokenRequest struct {
	// Workers are the ids of the workers that the token is for. One that ends with "*" is the beginning of ids.
	Workers []string `json:"workers"`
	// Manager is set for a token of a worker manager.
	Manager bool `json:"manager,omitempty"`
	// Days is the validity; 0 means that the token has no end.
	Days int64 `json:"days,omitempty"`
}

// ManagerWorkers are the workers of a worker manager's token that names none: the manager's workers, and the manager itself,
// which the server shows among the workers.
func ManagerWorkers() []string { return []string{"host-*", "cl-worker-manager-*"} }

// ProgramToken describes a program token, without its secret.
type ProgramToken struct {
	ID string `json:"id"`
	// User is the name of the token's account.
	User string `json:"user"`
	// Workers are those of ProgramTokenRequest.
	Workers []string `json:"workers"`
	Manager bool     `json:"manager,omitempty"`
	// Created, LastUsed and Expires are Unix seconds; 0 means never. LastUsed may be ten minutes too early.
	Created  int64 `json:"created"`
	LastUsed int64 `json:"last_used"`
	Expires  int64 `json:"expires"`
	// Access is the token itself, in the answer to a ProgramTokenRequest alone.
	Access string `json:"access_token,omitempty"`
}
