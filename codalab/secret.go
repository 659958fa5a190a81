package codalab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// SecretsKey is the key of a run's metadata that lists the names of secrets of its owner. The command gets their
// values as variables. CodaLab has no such key, and CodaLab's own server refuses it.
const SecretsKey = "secrets"

// Bounds of secrets. All secrets of a user together fit into an environment (execve(2): a quarter of the stack's limit,
// usually 2 MiB).
const (
	MaxSecrets     = 100      // of one user
	MaxSecretBytes = 16 << 10 // of one value
	maxSecretName  = 100
)

// Secret describes a secret of the user: an object of GET /secrets. Its value is never in an answer to a user.
type Secret struct {
	Name string `json:"name"`
	// Set and LastUsed are in Unix seconds. LastUsed is 0 until a worker has got the secret.
	Set      int64 `json:"set"`
	LastUsed int64 `json:"last_used"`
	// Lost means that the server cannot decrypt the value, because its key has changed. The user has to set it again.
	Lost bool `json:"lost"`
}

// NewSecret sets a secret: an object of POST /secrets, whose id is the name.
type NewSecret struct {
	Value string `json:"value"`
}

// RunSecrets has the values of a run's secrets, by name: the answer to POST /workers/ID/secrets/UUID.
type RunSecrets struct {
	Values map[string]string `json:"secrets"`
}

var secretName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// IsVariable reports whether a shell can have a variable of this name.
func IsVariable(name string) bool { return secretName().MatchString(name) }

// IsReservedVariable reports whether a variable of this name would break a run: the worker sets it, or a shell, a
// dynamic linker or a batch system gives it a meaning.
func IsReservedVariable(name string) bool {
	for _, prefix := range []string{"LD_", "SLURM_", "APPTAINER", "SINGULARITY", "BASH_FUNC_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{
		"PATH", "HOME", "TMPDIR", "PWD", "OLDPWD", "SHELL", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "CODALAB", "CODALAB_ATTEMPT", "GCONV_PATH",
		"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
	}, name)
}

// CheckSecretName refuses a name that no secret may have.
func CheckSecretName(name string) error {
	switch {
	case len(name) > maxSecretName:
		return fmt.Errorf("The name of a secret may have %d characters, not %d", maxSecretName, len(name))
	case !IsVariable(name):
		return fmt.Errorf("A secret is named as a variable: letters, digits and '_', no digit first; not %q", name)
	case IsReservedVariable(name):
		return fmt.Errorf("A secret cannot be named %s: the variable has a meaning of its own for a run", name)
	}
	return nil
}

// CheckSecretValue refuses a value that no variable can have. U+FFFD stands for text that was no UTF-8 or had a zero
// character before it was read from JSON.
func CheckSecretValue(value string) error {
	switch {
	case value == "":
		return errors.New("The value of a secret cannot be empty")
	case len(value) > MaxSecretBytes:
		return fmt.Errorf("The value of a secret may have %d bytes, not %d", MaxSecretBytes, len(value))
	case !utf8.ValidString(value), strings.ContainsAny(value, "\x00\uFFFD"):
		return errors.New("The value of a secret has to be text in UTF-8 without zero characters: encode other data, for example with base64")
	}
	return nil
}

// checkSecretNames refuses names in a run's metadata that cannot be names of secrets.
func checkSecretNames(names []string) error {
	if len(names) > MaxSecrets {
		return fmt.Errorf("A run may name %d secrets, not %d", MaxSecrets, len(names))
	}
	for i, name := range names {
		if err := CheckSecretName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("Secret %s is named twice", name)
		}
	}
	return nil
}
